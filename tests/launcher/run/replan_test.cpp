#include "launcher/run/replan.h"

#include <gtest/gtest.h>

namespace strait::run {
namespace {

// Stage 0 on a, stage 1 on b, with threads that the hosts have.
plan::Plan plan_over_two_hosts() {
  plan::Plan plan;
  plan.hosts = {{.name = "a", .cores = 4}, {.name = "b", .cores = 4}};
  for (std::uint32_t stage = 0; stage < 2; ++stage) {
    plan::Plan::Process process;
    process.name = {stage, 0};
    process.host = plan.hosts[stage].name;
    process.host_index = stage;
    process.chunks = {{0, 1}};
    process.threads = 4;
    plan.processes.push_back(process);
  }
  plan::Plan::Link link;
  link.name = "boundary 0.0>1.0";
  link.connects = {0, 0};
  link.listens = {1, 0};
  plan.links.push_back(link);
  plan.speeds.links = {{"a", "b", 1e9, 0, 0.01}};
  return plan;
}

// Stage 0 computes for 2 s, stage 1 for 1 s; what it sends down crosses at 1 MB/s.
StepLine step_line() {
  StepLine line;
  line.seconds = 3;
  trace::StepMetrics metrics;
  metrics.busy_seconds = 2;
  line.processes.emplace_back(net::ProcessName{0, 0}, metrics);
  metrics.busy_seconds = 1;
  line.processes.emplace_back(net::ProcessName{1, 0}, metrics);
  StepLine::LinkBytes sent;
  sent.name = "boundary 0.0>1.0";
  sent.sender = {0, 0};
  sent.bytes_per_second = 1e6;
  line.links.push_back(sent);
  return line;
}

TEST(RunSpeeds, AreThePlannedOnesAsFarAsStepsTookOtherTimes) {
  const plan::Plan plan = plan_over_two_hosts();
  RunSpeeds speeds(plan, {{{0, 0}, 1.0}, {{1, 0}, 1.0}});
  EXPECT_FALSE(speeds.known());
  for (std::size_t i = 0; i < RunSpeeds::kWindow; ++i) speeds.add(step_line());
  EXPECT_TRUE(speeds.known());
  EXPECT_EQ(speeds.step_seconds(), 3);
  plan::Plan measured = plan;
  measured.speeds = speeds.table();
  const auto flops = [](const plan::Plan& one, std::size_t process) {
    return plan::compute_speed(one, one.processes[process]).flops_per_second;
  };
  EXPECT_DOUBLE_EQ(flops(measured, 0), flops(plan, 0) / 2);
  EXPECT_DOUBLE_EQ(flops(measured, 1), flops(plan, 1));
  ASSERT_EQ(measured.speeds.links.size(), 1U);
  EXPECT_EQ(measured.speeds.links[0].bits_per_second, 8e6);
  EXPECT_EQ(measured.speeds.links[0].seconds, 0.01);
}

TEST(ReplanPays, IfItIsClearlyFasterAndSavesMoreThanTheChangeCosts) {
  EXPECT_TRUE(replan_pays({10, 5, 100, 60}));
  EXPECT_FALSE(replan_pays({10, 9.5, 100'000, 60})) << "within what forecasts err";
  EXPECT_FALSE(replan_pays({10, 5, 20, 60})) << "too few steps are left";
  EXPECT_FALSE(replan_pays({5, 10, 100, 0})) << "it is slower";
}

}  // namespace
}  // namespace strait::run
