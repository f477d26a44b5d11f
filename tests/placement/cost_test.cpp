#include <gtest/gtest.h>

#include "placement/cut_layers.h"
#include "tests/placement/networks.h"

namespace strait::placement {
namespace {

// Two stages of two layers each at one operation per second.
TEST(PlacementCost, OneMicroBatchPassesAndTheOthersFollow) {
  Problem problem = uniform(2, 4, 5);
  problem.forward_bytes = 1;
  problem.backward_bytes = 3;
  const Layout layout{2, 1, {0, 1}, {{0, 2}, {2, 4}}};
  // 4 s of compute, 4 s of transfer; then 4 times the gradient's 3 s.
  EXPECT_DOUBLE_EQ(cost_of(problem, layout).seconds, 8 + 4 * 3);
  EXPECT_EQ(cost_of(problem, layout).critical, Critical::path);
  problem.duplex = false;
  EXPECT_DOUBLE_EQ(cost_of(problem, layout).seconds, 8 + 4 * 4);
  problem.backward_bytes = 1;
  problem.duplex = true;
  EXPECT_DOUBLE_EQ(cost_of(problem, layout).seconds, 6 + 4 * 2);
  EXPECT_EQ(cost_of(problem, layout).critical, Critical::compute);
}

// All stages make theirs at the same time, after the last micro-batch.
TEST(PlacementCost, StepEndsWithTheLongestUpdate) {
  Problem problem = uniform(2, 4, 5);
  const Layout layout{2, 1, {0, 1}, {{0, 1}, {1, 4}}};
  const double passes = cost_of(problem, layout).seconds;
  for (Layer& layer : problem.layers) layer.updated = 6;
  EXPECT_DOUBLE_EQ(cost_of(problem, layout).seconds, passes) << "at once";
  problem.devices[0].updates_per_second = 1;
  problem.devices[1].updates_per_second = 2;
  EXPECT_DOUBLE_EQ(cost_of(problem, layout).seconds, passes + 3 * 6 / 2.0);
  problem.devices[1].updates_per_second = 9;
  EXPECT_DOUBLE_EQ(cost_of(problem, layout).seconds, passes + 6);
}

TEST(PlacementCost, ReplicasExchangeSharesTwice) {
  Problem problem = uniform(2, 1, 2);
  problem.layers[0].sync_bytes = 10;
  for (Path& path : problem.paths) path.seconds = 0.5;
  const Layout layout{1, 2, {0, 1}, {{0, 1}}};
  // Half of the bytes there and half back, two latencies, and one of the consensus.
  EXPECT_DOUBLE_EQ(cost_of(problem, layout).sync_seconds, 10 + 2 * 0.5);
  EXPECT_DOUBLE_EQ(cost_of(problem, layout).seconds, 1 + 11 + 0.5);
  problem.sync_overlaps = true;
  EXPECT_DOUBLE_EQ(cost_of(problem, layout).seconds, 11 + 0.5);
  // Replicas that train apart wait for no message of others.
  problem.agrees_each_step = false;
  EXPECT_DOUBLE_EQ(cost_of(problem, layout).seconds, 11);
  // A round in every fourth step has its latencies there alone; the bytes are a mean.
  problem.rounds = 0.25;
  EXPECT_DOUBLE_EQ(cost_of(problem, layout).sync_seconds, 10 + 2 * 0.5 / 4);
}

TEST(PlacementCost, LineCarriesAllThatItsHostSends) {
  Problem problem = uniform(3, 3, 4);
  problem.forward_bytes = 1;
  problem.backward_bytes = 1;
  problem.hosts[1].up_bytes_per_second = 0.5;
  const Layout layout{3, 1, {0, 1, 2}, {{0, 1}, {1, 2}, {2, 3}}};
  // The middle stage sends to both others: 8 bytes.
  EXPECT_DOUBLE_EQ(cost_of(problem, layout).line_seconds, 16);
  EXPECT_EQ(cost_of(problem, layout).critical, Critical::line);
  EXPECT_EQ(cost_of(problem, layout).critical_device, 1U);
}

TEST(PlacementCost, LayoutThatDoesNotFitNeverEnds) {
  Problem problem = uniform(1, 2, 1);
  problem.layers[0].state_bytes = 3;
  problem.devices[0].memory_bytes = 2;
  EXPECT_EQ(cost_of(problem, {1, 1, {0}, {{0, 2}}}).seconds, kUnlimited);
}

TEST(CutLayers, GivesLayersBySpeed) {
  Problem problem = uniform(3, 12, 100);
  const std::vector<LayerSpan> cut =
      cut_layers(LayerSums(problem), {{3, kUnlimited}, {1, kUnlimited}, {2, kUnlimited}}, 100);
  EXPECT_EQ(cut, (std::vector<LayerSpan>{{0, 6}, {6, 8}, {8, 12}}));
}

TEST(CutLayers, GivesTheFastestStageAllThatThePaceAllows) {
  Problem problem = uniform(2, 4, 100);
  const LayerSums sums(problem);
  const std::vector<StageLimits> stages{{1, kUnlimited}, {4, kUnlimited}};
  EXPECT_EQ(cut_layers(sums, stages, 100, 2).front().second, 1);
  // A single micro-batch follows none.
  EXPECT_EQ(cut_layers(sums, stages, 1).front().second, 1);
}

// In a micro-batch a layer takes 4/3 s on the fast stage, and 2 s on the slow one; 1 s of each is
// for the update.
TEST(CutLayers, CountsUpdates) {
  Problem problem = uniform(2, 12, 100);
  for (Layer& layer : problem.layers) layer.updated = 100;
  const std::vector<StageLimits> stages{{3, kUnlimited, 1}, {1, kUnlimited, 1}};
  EXPECT_EQ(cut_layers(LayerSums(problem), stages, 100).front().second, 7);
  for (Layer& layer : problem.layers) layer.updated = 0;
  EXPECT_EQ(cut_layers(LayerSums(problem), stages, 100).front().second, 9);
}

TEST(CutLayers, HasNoCutForTooManyStages) {
  const Problem problem = uniform(3, 2, 1);
  EXPECT_TRUE(cut_layers(LayerSums(problem), std::vector<StageLimits>(3), 1).empty());
}

}  // namespace
}  // namespace strait::placement
