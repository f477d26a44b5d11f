#include <gtest/gtest.h>

#include "launcher/hosts/host_facts.h"
#include "launcher/run/run_reach.h"

namespace strait::run {
namespace {

plan::RunFile run_on(const std::vector<std::string>& names) {
  plan::RunFile run;
  run.plan.recipe.hosts.backend = recipe::BackendKind::ssh;
  for (const std::string& name : names) {
    run.plan.hosts.emplace_back().name = name;
    run.plan.recipe.hosts.list.emplace_back().name = name;
  }
  return run;
}

std::unique_ptr<net::Node> coordinator_node() {
  net::NodeOptions options;
  options.name = net::ProcessName::coordinator();
  options.run = net::RunId::random();
  options.keys = net::CurveKeyPair::generate();
  return std::make_unique<net::Node>(options);
}

TEST(AgentListeners, OthersReachTheLaunchersOwnHostWhereTheyReachTheLauncher) {
  const std::vector<std::string> own = hosts::own_addresses();
  if (own.empty()) GTEST_SKIP() << "this machine has no address but that of loopback";
  const auto node = coordinator_node();
  AgentListeners listeners(*node, 3);
  listeners.listen(0, "127.0.0.1", {0, 0});
  listeners.listen(1, own.front(), {0, 0});
  listeners.listen(2, "127.0.0.1", {0, 0});
  plan::RunFile run = run_on({"localhost", "far", "named"});
  run.plan.recipe.hosts.list[2].address = "10.0.0.9";
  EXPECT_EQ(listeners.job_for(run, 0).address, own.front());
  EXPECT_EQ(listeners.job_for(run, 1).address, "");
  EXPECT_EQ(listeners.job_for(run, 2).address, "10.0.0.9");
}

TEST(AgentListeners, HostsOfOneMachineMeetOnLoopback) {
  const auto node = coordinator_node();
  AgentListeners listeners(*node, 2);
  listeners.listen(0, "127.0.0.1", {0, 0});
  listeners.listen(1, "127.0.0.1", {0, 0});
  EXPECT_EQ(listeners.job_for(run_on({"localhost", "again"}), 0).address, "");
}

TEST(AgentListeners, StagesConnectWhereTheirAgentDoes) {
  const auto node = coordinator_node();
  AgentListeners listeners(*node, 1);
  listeners.listen(0, "127.0.0.1", {0, 0});
  EXPECT_EQ(listeners.job_for(run_on({"localhost"}), 0).endpoint, listeners.at(0).endpoint());
}

}  // namespace
}  // namespace strait::run
