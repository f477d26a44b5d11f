#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "launcher/hosts/path_probe.h"

namespace strait::hosts {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Pair;

constexpr net::ProcessName kUpper{0, 0};
constexpr net::ProcessName kLower{1, 0};
constexpr const char* kRefused = "10.0.0.2:47000: Connection refused";

// Stages 0 and 1 on hosts a and b, and stage 2 on b as well.
plan::Plan plan_of_two_hosts() {
  plan::Plan plan;
  plan.recipe.hosts.ports = {47000, 47099};
  plan.hosts = {{"a"}, {"b"}};
  for (std::uint32_t stage = 0; stage < 3; ++stage) {
    plan::Plan::Process process;
    process.name = {stage, 0};
    process.host_index = stage == 0 ? 0 : 1;
    plan.processes.push_back(process);
  }
  for (std::uint32_t stage = 0; stage < 2; ++stage) {
    plan::Plan::Link link;
    link.name = stage == 0 ? "boundary 0.0>1.0" : "boundary 1.0>2.0";
    link.connects = {stage, 0};
    link.listens = {stage + 1, 0};
    link.forward_bytes = 2'000'000;
    link.backward_bytes = 1'000'000;
    plan.links.push_back(link);
  }
  plan.step_seconds = 0.5;
  return plan;
}

PathProbe reached(std::size_t from, std::size_t to, const std::string& address, double took = 0.01,
                  double rate = 0) {
  return {from, to, address, "", took, rate};
}

PathProbe failed(std::size_t from, std::size_t to, const std::string& address) {
  return {from, to, address, kRefused, 0, 0};
}

TEST(Routes, ProbesOnlyLinkedPairsInBothDirections) {
  EXPECT_THAT(paths_to_probe(plan_of_two_hosts()), ElementsAre(Pair(0, 1), Pair(1, 0)));
}

TEST(Routes, PlannedEndListensWhenReached) {
  const auto routes =
      choose_routes(plan_of_two_hosts(), {reached(0, 1, "10.0.0.2"), reached(1, 0, "10.0.0.1")});
  ASSERT_EQ(routes.size(), 2U);
  EXPECT_EQ(routes[0].link, "boundary 0.0>1.0");
  EXPECT_EQ(routes[0].binds, kLower);
  EXPECT_EQ(routes[0].address, "10.0.0.2");
  EXPECT_FALSE(routes[0].relayed);
  EXPECT_EQ(routes[1].address, "127.0.0.1") << "both stages are on host b";
}

TEST(Routes, BlockedHostConnectsOut) {
  const auto routes =
      choose_routes(plan_of_two_hosts(), {failed(0, 1, "10.0.0.2"), reached(1, 0, "10.0.0.1")});
  EXPECT_EQ(routes[0].binds, kUpper);
  EXPECT_EQ(routes[0].address, "10.0.0.1");
  EXPECT_FALSE(routes[0].relayed);
}

TEST(Routes, RelaysUnreachablePairs) {
  const auto routes =
      choose_routes(plan_of_two_hosts(), {failed(0, 1, "10.0.0.2"), failed(1, 0, "10.0.0.1")});
  EXPECT_TRUE(routes[0].relayed);
  EXPECT_EQ(routes[0].binds, kLower);
  EXPECT_EQ(routes[0].address, "127.0.0.1");
  EXPECT_FALSE(routes[1].relayed);
}

TEST(Routes, PrefersFastestThenNearestAddress) {
  const auto address = [](std::vector<PathProbe> tries) {
    return choose_routes(plan_of_two_hosts(), tries).at(0).address;
  };
  EXPECT_EQ(address({reached(0, 1, "10.0.0.2", 0.001, 1e7), reached(0, 1, "10.1.0.2", 0.02, 1e8)}),
            "10.1.0.2");
  EXPECT_EQ(
      address({reached(0, 1, "10.0.0.2", 0.02, 1e8), reached(0, 1, "10.1.0.2", 0.001, 0.99e8)}),
      "10.1.0.2");
  EXPECT_EQ(address({failed(0, 1, "10.0.0.2"), reached(0, 1, "fd00::2", 0.1, 1e3)}), "fd00::2");
  EXPECT_EQ(
      address({reached(0, 1, "10.0.0.2", 0.01, 1e8), reached(0, 1, "10.1.0.2", 0.0099, 1.02e8)}),
      "10.0.0.2")
      << "about the same: the first";
}

TEST(Routes, ReportsBlockedHost) {
  const plan::Plan plan = plan_of_two_hosts();
  const auto blocked = blocked_hosts(plan, {failed(0, 1, "10.0.0.2"), reached(1, 0, "10.0.0.1")});
  EXPECT_THAT(blocked, ElementsAre(AllOf(
                           HasSubstr("inbound TCP connections to host b at 10.0.0.2 are blocked"),
                           HasSubstr("from a"), HasSubstr(kRefused),
                           HasSubstr("open the TCP ports 47000-47099"))));
  EXPECT_THAT(blocked_hosts(plan, {reached(0, 1, "10.0.0.2"), reached(1, 0, "10.0.0.1")}),
              IsEmpty());
}

TEST(Routes, WarnsAboutCostOfRelay) {
  const plan::Plan plan = plan_of_two_hosts();
  const auto routes = choose_routes(plan, {});
  EXPECT_THAT(relay_warning(plan, routes, 0.75),
              AllOf(HasSubstr("RELAYED: a and b cannot reach each other"),
                    HasSubstr("boundary 0.0>1.0 goes through the launcher's host"),
                    HasSubstr("3.0 MB of every step"), HasSubstr("0.75 s by forecast"),
                    HasSubstr("0.5 s without")));
  const auto direct = choose_routes(plan, {reached(0, 1, "10.0.0.2")});
  EXPECT_EQ(relay_warning(plan, direct, 0.75), "");
}

}  // namespace
}  // namespace strait::hosts
