#include <gtest/gtest.h>

#include "framework/store/manifest.h"
#include "launcher/recipe/run_files.h"

namespace strait::plan {
namespace {

// A stage on each of these hosts, of four.
Plan stages_on(const std::vector<std::size_t>& hosts) {
  Plan plan;
  plan.recipe.checkpoint.memory_every = 10;
  for (const char* name : {"a", "b", "c", "d"}) plan.hosts.push_back({name});
  for (std::uint32_t stage = 0; stage < hosts.size(); ++stage) {
    Plan::Process process;
    process.name = {stage, 0};
    process.host_index = hosts[stage];
    process.saved_bytes = 100 * (stage + 1);
    process.cache_bytes = 1;
    plan.processes.push_back(process);
  }
  return plan;
}

TEST(ShardPlaces, NeighbourIsTheNextHostWithProcesses) {
  using Neighbours = std::vector<std::optional<std::size_t>>;
  EXPECT_EQ(memory_neighbours(stages_on({0, 1, 3})), (Neighbours{1, 3, std::nullopt, 0}));
  EXPECT_EQ(memory_neighbours(stages_on({2, 2})), Neighbours(4));
}

TEST(ShardPlaces, HostHoldsTwoOfItsOwnAndTwoOfItsNeighbours) {
  const Plan plan = stages_on({0, 1, 3});
  EXPECT_EQ(held_bytes(plan, 0), 2 * (101 + 301));
  EXPECT_EQ(held_bytes(plan, 1), 2 * (201 + 101));
  EXPECT_EQ(held_bytes(plan, 2), 0);
  EXPECT_EQ(held_bytes(plan, 3), 2 * (301 + 201));
  EXPECT_EQ(held_bytes(stages_on({2, 2}), 2), 2 * (101 + 201));
}

TEST(ShardPlaces, HoldsNothingWithoutCheckpointsInMemory) {
  Plan plan = stages_on({0, 1});
  plan.recipe.checkpoint.memory_every = 0;
  EXPECT_EQ(held_bytes(plan, 0), 0);
}

TEST(ShardPlaces, NamesWriterAndHostOfEachFile) {
  const auto shards = written_shards(stages_on({3, 1}), {{store::weights_name(1, 0), 10, "a"},
                                                         {"notes", 1, "b"},
                                                         {store::shard_name(0, 0), 20, "c"}});
  ASSERT_EQ(shards.size(), 2U);
  EXPECT_EQ(shards[0].file.hash, "a");
  EXPECT_EQ(shards[0].process, (net::ProcessName{1, 0}));
  EXPECT_EQ(shards[0].host, 1U);
  EXPECT_EQ(shards[1].process, (net::ProcessName{0, 0}));
  EXPECT_EQ(shards[1].host, 3U);
}

}  // namespace
}  // namespace strait::plan
