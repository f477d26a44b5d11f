#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "launcher/run/restart_policy.h"

namespace strait::run {
namespace {

using testing::ElementsAre;

std::vector<std::string> names(const std::vector<recipe::RecipeHost>& hosts) {
  std::vector<std::string> all;
  for (const recipe::RecipeHost& host : hosts) all.push_back(host.name);
  return all;
}

// Stage i of each replica is on host i of three.
plan::Plan three_hosts(std::int64_t replicas = 1) {
  plan::Plan plan;
  plan.recipe.hosts.backend = recipe::BackendKind::ssh;
  plan.recipe.pipeline.stages = 3;
  plan.recipe.pipeline.replicas = replicas;
  for (const char* name : {"a", "b", "c"}) {
    plan.recipe.hosts.list.push_back({.name = name, .slots = replicas});
    plan.hosts.push_back({name, 8, 1 << 20});
  }
  plan.recipe.hosts.spare = {{.name = "x"}, {.name = "y", .address = "10.0.0.2"}};
  for (std::uint32_t replica = 0; replica < replicas; ++replica) {
    for (std::uint32_t stage = 0; stage < 3; ++stage) {
      plan::Plan::Process& process = plan.processes.emplace_back();
      process.name = {stage, replica};
      process.host_index = stage;
      process.host = plan.hosts[stage].name;
    }
  }
  return plan;
}

TEST(LostHosts, SpareTakesPlaceAndSlotsAndLostOneBecomesSpare) {
  plan::Plan plan = three_hosts(2);
  replace_host(plan, 1, 1);
  const recipe::Recipe::Hosts& hosts = plan.recipe.hosts;
  EXPECT_THAT(names(hosts.list), ElementsAre("a", "y", "c"));
  EXPECT_EQ(hosts.list[1].slots, 2);
  EXPECT_EQ(hosts.list[1].address, "10.0.0.2");
  EXPECT_THAT(names(hosts.spare), ElementsAre("x", "b"));
  EXPECT_EQ(hosts.spare[1].slots, std::nullopt);
  EXPECT_EQ(plan.hosts[1].name, "y");
  EXPECT_EQ(plan.hosts[1].memory, 0) << "of the former host";
  EXPECT_EQ(plan.process({1, 0}).host, "y");
  EXPECT_EQ(plan.process({1, 1}).host, "y");
  EXPECT_EQ(plan.process({2, 1}).host, "c");
}

// Replica 0 on hosts 0 and 1, replica 1 on 2 and 3, replica 2 on 3 and 4.
TEST(LostHosts, SparesGoFirstToReplicasThatMissFewest) {
  plan::Plan plan;
  plan.hosts.resize(6);
  for (const auto& [replica, host] : std::vector<std::pair<std::uint32_t, std::size_t>>{
           {0, 0}, {0, 1}, {1, 2}, {1, 3}, {2, 3}, {2, 4}}) {
    plan::Plan::Process& process = plan.processes.emplace_back();
    process.name = {static_cast<std::uint32_t>(host % 2), replica};
    process.host_index = host;
  }
  EXPECT_THAT(replacement_order(plan, {}, {0, 1, 2}), ElementsAre(2, 0, 1));
  EXPECT_THAT(replacement_order(plan, {}, {0, 1, 3, 4}), ElementsAre(3, 4, 0, 1)) << "1, then 2";
  EXPECT_THAT(replacement_order(plan, {1}, {0, 1, 2}), ElementsAre(0, 1, 2)) << "1 is left out";
  EXPECT_THAT(replacement_order(plan, {}, {5, 2}), ElementsAre(2, 5)) << "nothing runs on 5";
  EXPECT_THAT(replacement_order(plan, {}, {}), ElementsAre());
}

TEST(LostHosts, FewerStagesOnTheOthers) {
  const auto recipe = recipe_without(three_hosts(), {0});
  ASSERT_TRUE(recipe);
  EXPECT_EQ(recipe->pipeline.stages, 2);
  EXPECT_THAT(names(recipe->hosts.list), ElementsAre("b", "c"));
  EXPECT_THAT(names(recipe->hosts.spare), ElementsAre("x", "y", "a"));
  EXPECT_EQ(recipe_without(three_hosts(), {0, 2})->pipeline.stages, 1);
  EXPECT_EQ(recipe_without(three_hosts(), {0, 1, 2}), std::nullopt);
}

TEST(LostHosts, EveryReplicaKeepsEqualStages) {
  plan::Plan plan = three_hosts(2);
  plan.recipe.hosts.list[1].slots = 5;  // more than it uses
  EXPECT_EQ(recipe_without(plan, {0})->pipeline.stages, 3);
  plan.recipe.hosts.list[1].slots = 1;
  EXPECT_EQ(recipe_without(plan, {0})->pipeline.stages, 1) << "three slots, two replicas";
  EXPECT_EQ(recipe_without(plan, {0, 2}), std::nullopt);
}

TEST(LostHosts, HostsWithoutSlotsKeepAsManyProcesses) {
  plan::Plan plan = three_hosts(2);
  for (recipe::RecipeHost& host : plan.recipe.hosts.list) host.slots.reset();
  EXPECT_EQ(recipe_without(plan, {2})->pipeline.stages, 2);
}

TEST(LostHosts, RangesOfFormerStagesAreDropped) {
  plan::Plan plan = three_hosts();
  plan.recipe.pipeline.partition.kind = recipe::PartitionKind::ranges;
  plan.recipe.pipeline.partition.ranges = {{0, 1}, {2, 3}, {4, 5}};
  EXPECT_EQ(recipe_without(plan, {1})->pipeline.partition.kind, recipe::PartitionKind::balanced);
  plan.recipe.hosts.list[0].slots = 3;
  EXPECT_EQ(recipe_without(plan, {1})->pipeline.partition.ranges.size(), 3U);
}

}  // namespace
}  // namespace strait::run
