#include "schedules/evaluation_shard.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

namespace strait::schedules::evaluation_shard_test {
namespace {

std::vector<std::int64_t> shard(std::int64_t all, const std::vector<std::int64_t>& weights,
                                std::size_t index) {
  std::vector<std::int64_t> own;
  for (std::int64_t m = 0; m < evaluation_micro_batches(all, weights, index); ++m) {
    own.push_back(evaluation_micro_batch(m, weights, index));
  }
  return own;
}

using Numbers = std::vector<std::int64_t>;

TEST(EvaluationShard, EqualReplicasTakeTurns) {
  EXPECT_EQ(shard(7, {1, 1, 1}, 0), (Numbers{0, 3, 6}));
  EXPECT_EQ(shard(7, {1, 1, 1}, 2), (Numbers{2, 5}));
  EXPECT_EQ(shard(7, {4, 4, 4}, 2), (Numbers{2, 5}));
}

// By hand: after m and n micro-batches the next one has (m + 1) / 3 or (n + 1) / 1 of its own.
TEST(EvaluationShard, AFasterReplicaTakesMoreTurns) {
  EXPECT_EQ(shard(10, {3, 1}, 0), (Numbers{0, 1, 2, 4, 5, 6, 8, 9}));
  EXPECT_EQ(shard(10, {3, 1}, 1), (Numbers{3, 7}));
  EXPECT_EQ(shard(10, {6, 2}, 1), (Numbers{3, 7}));
}

TEST(EvaluationShard, EachMicroBatchHasOneReplicaAndNoneHasMuchMoreThanItsPart) {
  for (const Numbers& weights : {Numbers{1}, {2, 1}, {13, 3}, {8, 7}, {1, 5, 2}, {9, 9, 9, 1}}) {
    std::int64_t sum = 0;
    for (const std::int64_t weight : weights) sum += weight;
    for (std::int64_t all = 0; all < 60; ++all) {
      Numbers taken;
      for (std::size_t i = 0; i < weights.size(); ++i) {
        const Numbers own = shard(all, weights, i);
        taken.insert(taken.end(), own.begin(), own.end());
        // A replica with less than one micro-batch has one more at most.
        EXPECT_LT(static_cast<std::int64_t>(own.size()) * sum, all * weights[i] + 2 * sum);
      }
      std::ranges::sort(taken);
      ASSERT_EQ(std::ssize(taken), all);
      for (std::int64_t m = 0; m < all; ++m) EXPECT_EQ(taken[static_cast<std::size_t>(m)], m);
    }
  }
}

}  // namespace
}  // namespace strait::schedules::evaluation_shard_test
