#include "stages/partition.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <random>

namespace strait::stages {
namespace {

models::ModelDescription model_of(const std::vector<double>& costs) {
  models::ModelDescription model;
  for (const double cost : costs) {
    models::LayerCost layer;
    layer.forward_flops_per_token = cost;
    model.layers.push_back(layer);
  }
  return model;
}

double slowest(const models::ModelDescription& model,
               const std::vector<models::LayerRange>& ranges) {
  double worst = 0;
  for (const models::LayerRange& range : ranges) {
    double sum = 0;
    for (int i = range.first; i <= range.last; ++i) {
      sum += model.layers[static_cast<std::size_t>(i)].forward_flops_per_token;
    }
    worst = std::max(worst, sum);
  }
  return worst;
}

void expect_each_layer_once(const models::ModelDescription& model,
                            const std::vector<models::LayerRange>& ranges) {
  int next = 0;
  for (const models::LayerRange& range : ranges) {
    EXPECT_EQ(range.first, next);
    EXPECT_GE(range.last, range.first);
    next = range.last + 1;
  }
  EXPECT_EQ(next, static_cast<int>(model.layers.size()));
}

// All cuts of the blocks into stages, by brute force.
double best_possible(const models::ModelDescription& model, int blocks, int stages) {
  double best = 1e300;
  std::vector<int> mask(static_cast<std::size_t>(blocks - 1), 0);
  std::fill(mask.end() - (stages - 1), mask.end(), 1);
  do {
    std::vector<std::pair<int, int>> ranges;
    int first = 0;
    for (int i = 0; i < blocks - 1; ++i) {
      if (mask[static_cast<std::size_t>(i)] == 1) {
        ranges.emplace_back(first, i);
        first = i + 1;
      }
    }
    ranges.emplace_back(first, blocks - 1);
    best = std::min(best, slowest(model, explicit_partition(model, ranges)));
  } while (std::next_permutation(mask.begin(), mask.end()));
  return best;
}

TEST(Partition, BalancedIsAsGoodAsTheBestOfAllCuts) {
  std::mt19937_64 random(11);
  for (int i = 0; i < 60; ++i) {
    const int blocks = 2 + static_cast<int>(random() % 8);
    std::vector<double> costs;
    for (int b = 0; b < blocks + 2; ++b) costs.push_back(static_cast<double>(random() % 100));
    const models::ModelDescription model = model_of(costs);
    for (int stages = 1; stages <= blocks; ++stages) {
      const auto ranges = balanced_partition(model, stages);
      expect_each_layer_once(model, ranges);
      EXPECT_DOUBLE_EQ(slowest(model, ranges), best_possible(model, blocks, stages))
          << "case " << i;
    }
  }
}

TEST(Partition, MoreStagesThanBlocksNamesBoth) {
  const models::ModelDescription model = model_of({0, 1, 1, 0});
  try {
    balanced_partition(model, 3);
    FAIL() << "three stages were cut from two blocks";
  } catch (const PartitionError& error) {
    EXPECT_THAT(error.what(), testing::HasSubstr("pipeline.stages is 3"));
    EXPECT_THAT(error.what(), testing::HasSubstr("2 transformer blocks"));
  }
}

TEST(Partition, ExplicitRangesCountBlocksAndTakeTheEndsAlong) {
  const models::ModelDescription model = model_of({0, 1, 1, 1, 1, 0});
  const auto ranges = explicit_partition(model, {{0, 0}, {1, 3}});
  EXPECT_EQ(ranges[0].first, 0);
  EXPECT_EQ(ranges[0].last, 1);
  EXPECT_EQ(ranges[1].first, 2);
  EXPECT_EQ(ranges[1].last, 5);
}

TEST(Partition, ExplicitRangesWithGapsRepeatsOrWrongEndsAreRefused) {
  const models::ModelDescription model = model_of({0, 1, 1, 1, 1, 0});
  using Blocks = std::vector<std::pair<int, int>>;
  for (const Blocks& wrong : {Blocks{{0, 1}, {3, 3}}, Blocks{{0, 2}, {2, 3}}, Blocks{{1, 3}},
                              Blocks{{0, 2}}, Blocks{{0, 4}}, Blocks{{0, 1}, {3, 2}}, Blocks{}}) {
    EXPECT_THROW(explicit_partition(model, wrong), PartitionError);
  }
}

}  // namespace
}  // namespace strait::stages
