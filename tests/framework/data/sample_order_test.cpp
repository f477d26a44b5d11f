#include "framework/data/sample_order.h"

#include <algorithm>
#include <numeric>
#include <random>
#include <set>

#include "tests/framework/store/expect_store_error.h"

namespace strait::data {
namespace {

std::vector<std::int64_t> numbers_of(const std::vector<store::SampleId>& samples) {
  std::vector<std::int64_t> numbers;
  for (const store::SampleId sample : samples) numbers.push_back(number(sample));
  return numbers;
}

// How many rows the replica owns.
std::int64_t shard_rows(const SampleOrderOptions& options) {
  return (options.rows - options.replica + options.replicas - 1) / options.replicas;
}

std::vector<std::int64_t> stream_of(const SampleOrder& order, std::int64_t steps) {
  std::vector<std::int64_t> stream;
  for (std::int64_t step = 0; step < steps; ++step) {
    const std::vector<std::int64_t> samples = numbers_of(order.samples(store::Step{step}));
    stream.insert(stream.end(), samples.begin(), samples.end());
  }
  return stream;
}

SampleOrderOptions random_options(std::mt19937_64& random) {
  SampleOrderOptions options;
  options.seed = random();
  options.replicas = static_cast<std::int64_t>(1 + random() % 4);
  options.replica = static_cast<std::int64_t>(random() % 4) % options.replicas;
  options.rows = options.replicas + static_cast<std::int64_t>(random() % 80);
  const std::int64_t smallest = options.rows / options.replicas;
  options.rows_per_step = 1 + static_cast<std::int64_t>(random() % 80) % smallest;
  options.shuffle = random() % 8 != 0;
  return options;
}

std::string words_of(const SampleOrderOptions& options) {
  return "seed " + std::to_string(options.seed) + ", rows " + std::to_string(options.rows) +
         ", replica " + std::to_string(options.replica) + " of " +
         std::to_string(options.replicas) + ", per step " + std::to_string(options.rows_per_step) +
         (options.shuffle ? "" : ", not shuffled");
}

TEST(SampleOrder, EveryEpochHoldsEverySampleOnceAndNoStepHoldsOneTwice) {
  std::mt19937_64 random(11);
  for (int round = 0; round < 400; ++round) {
    const SampleOrderOptions options = random_options(random);
    SCOPED_TRACE(words_of(options));
    const SampleOrder order(options);
    const std::int64_t rows = shard_rows(options);
    const std::int64_t steps = 5 * rows / options.rows_per_step + 3;
    const std::vector<std::int64_t> stream = stream_of(order, steps);
    ASSERT_EQ(stream.size(), static_cast<std::size_t>(steps * options.rows_per_step));
    std::set<std::int64_t> shard;
    for (std::int64_t row = options.replica; row < options.rows; row += options.replicas) {
      shard.insert(row);
    }
    const auto check = [&](std::int64_t from, std::int64_t count) {
      return std::set<std::int64_t>(stream.begin() + from, stream.begin() + from + count);
    };
    for (std::int64_t step = 0; step < steps; ++step) {
      ASSERT_EQ(check(step * options.rows_per_step, options.rows_per_step).size(),
                static_cast<std::size_t>(options.rows_per_step))
          << "step " << step;
    }
    for (std::int64_t epoch = 0; epoch < 5; ++epoch) {
      ASSERT_EQ(check(epoch * rows, rows), shard) << "epoch " << epoch;
    }
  }
}

// The rule of the header, done the slow way: with one row per step no step spans two epochs, so
// that stream is the bare permutations.
TEST(SampleOrder, MovesExactlyTheSamplesThatTheSpanningStepAlreadyHas) {
  std::mt19937_64 random(12);
  for (int round = 0; round < 200; ++round) {
    const SampleOrderOptions options = random_options(random);
    SCOPED_TRACE(words_of(options));
    SampleOrderOptions bare = options;
    bare.rows_per_step = 1;
    const SampleOrder order(options);
    const std::int64_t rows = shard_rows(options);
    const std::vector<std::int64_t> permutations = stream_of(SampleOrder(bare), 6 * rows);
    std::vector<std::int64_t> expected;
    for (std::int64_t epoch = 0; epoch < 6; ++epoch) {
      const auto first = permutations.begin() + epoch * rows;
      std::vector<std::int64_t> rest(first, first + rows);
      const std::int64_t held = epoch * rows % options.rows_per_step;
      const std::set<std::int64_t> taken(expected.end() - held, expected.end());
      const std::int64_t wanted = held == 0 ? 0 : options.rows_per_step - held;
      std::vector<std::int64_t> moved;
      std::int64_t placed = 0;
      auto next = rest.begin();
      for (; placed < wanted; ++next) {
        if (taken.count(*next) == 0) {
          expected.push_back(*next);
          ++placed;
        } else {
          moved.push_back(*next);
        }
      }
      expected.insert(expected.end(), moved.begin(), moved.end());
      expected.insert(expected.end(), next, rest.end());
    }
    const std::int64_t steps = 6 * rows / options.rows_per_step;
    expected.resize(static_cast<std::size_t>(steps * options.rows_per_step));
    ASSERT_EQ(stream_of(order, steps), expected);
  }
}

TEST(SampleOrder, ReplicasShareTheRowsWithoutOverlap) {
  std::set<std::int64_t> seen;
  std::size_t count = 0;
  for (std::int64_t replica = 0; replica < 3; ++replica) {
    const SampleOrderOptions options{.seed = 1, .rows = 32, .replicas = 3, .replica = replica};
    for (const std::int64_t row : stream_of(SampleOrder(options), shard_rows(options))) {
      EXPECT_EQ(row % 3, replica);
      seen.insert(row);
      ++count;
    }
  }
  EXPECT_EQ(seen.size(), 32U);
  EXPECT_EQ(count, 32U);
}

TEST(SampleOrder, IsTheFilesOrderWithoutShuffling) {
  const SampleOrder order({.rows = 5, .rows_per_step = 2, .shuffle = false});
  EXPECT_THAT(stream_of(order, 5), testing::ElementsAre(0, 1, 2, 3, 4, 0, 1, 2, 3, 4));
}

TEST(SampleOrder, DependsOnSeedEpochAndReplica) {
  const auto epoch_of = [](std::uint64_t seed, std::int64_t replica, std::int64_t epoch) {
    const SampleOrder order(
        {.seed = seed, .rows = 128, .replicas = 2, .replica = replica, .rows_per_step = 64});
    std::vector<std::int64_t> rows = numbers_of(order.samples(store::Step{epoch}));
    for (std::int64_t& row : rows) row /= 2;
    return rows;
  };
  const std::vector<std::int64_t> first = epoch_of(1, 0, 0);
  EXPECT_NE(first, epoch_of(2, 0, 0));
  EXPECT_NE(first, epoch_of(1, 1, 0));
  EXPECT_NE(first, epoch_of(1, 0, 1));
}

// These numbers are a promise to every run that is resumed on another machine or by a later build.
TEST(SampleOrder, StaysTheSameForEver) {
  const SampleOrder order({.seed = 1, .rows = 10, .rows_per_step = 4});
  EXPECT_THAT(stream_of(order, 5),
              testing::ElementsAre(2, 5, 0, 6, 3, 9, 8, 7, 4, 1, 3, 5, 4, 6, 1, 2, 0, 8, 7, 9));
  const SampleOrder large({.seed = 42, .rows = 1'000'000'007, .rows_per_step = 3});
  EXPECT_THAT(numbers_of(large.samples(store::Step{123'456'789'012})),
              testing::ElementsAre(97893018, 377495273, 530653070));
}

TEST(SampleOrder, PutsEveryRowAtEveryPlaceEquallyOften) {
  constexpr std::int64_t kRows = 12;
  constexpr int kRounds = 12'000;
  std::vector<int> counts(kRows * kRows);
  for (int seed = 0; seed < kRounds; ++seed) {
    const SampleOrder order(
        {.seed = static_cast<std::uint64_t>(seed), .rows = kRows, .rows_per_step = kRows});
    const std::vector<std::int64_t> rows = numbers_of(order.samples(store::Step{0}));
    for (std::size_t place = 0; place < rows.size(); ++place) {
      ++counts[place * kRows + static_cast<std::size_t>(rows[place])];
    }
  }
  double chi_squared = 0;
  for (const int count : counts) {
    const double expected = static_cast<double>(kRounds) / kRows;
    chi_squared += (count - expected) * (count - expected) / expected;
  }
  EXPECT_LT(chi_squared, 190);  // 121 degrees of freedom: 1 in 100 000 above, were it pure chance
}

TEST(SampleOrder, CountsTheStepsThatCoverEpochs) {
  const SampleOrder order({.rows = 10, .rows_per_step = 4});
  EXPECT_EQ(order.epoch_steps(1), 3);
  EXPECT_EQ(order.epoch_steps(2), 5);
  const SampleOrder second({.rows = 11, .replicas = 2, .replica = 1, .rows_per_step = 5});
  EXPECT_EQ(second.epoch_steps(1), 2);  // replica 0 has 6 rows, and all take as many steps
}

// Replicas that take unequal numbers of rows.
TEST(SampleOrder, UnequalReplicasTogetherHoldEverySampleOnceInEveryEpoch) {
  std::mt19937_64 random(12);
  for (int round = 0; round < 200; ++round) {
    SampleOrderOptions options;
    options.seed = random();
    options.replicas = static_cast<std::int64_t>(2 + random() % 3);
    for (std::int64_t i = 0; i < options.replicas; ++i) {
      options.rows_by_replica.push_back(static_cast<std::int64_t>(1 + random() % 12));
    }
    const std::int64_t batch =
        std::reduce(options.rows_by_replica.begin(), options.rows_by_replica.end());
    options.rows = batch + static_cast<std::int64_t>(random() % 200);
    SCOPED_TRACE(words_of(options));
    std::set<std::int64_t> all;
    std::int64_t steps = 0;
    for (options.replica = 0; options.replica < options.replicas; ++options.replica) {
      const auto own = options.rows_by_replica[static_cast<std::size_t>(options.replica)];
      const SampleOrder order(options);
      std::set<std::int64_t> shard;
      const std::vector<std::int64_t> stream = stream_of(order, 3 * options.rows / own + 3);
      // As long as an epoch is, it holds no sample twice; then the next one begins.
      while (shard.insert(stream[shard.size()]).second) {
      }
      const auto rows = std::ssize(shard);
      ASSERT_EQ(std::set(stream.begin() + rows, stream.begin() + 2 * rows), shard);
      const double share = static_cast<double>(options.rows * own) / static_cast<double>(batch);
      EXPECT_LT(std::abs(static_cast<double>(rows) - share), 2);
      for (const std::int64_t sample : shard) ASSERT_TRUE(all.insert(sample).second) << sample;
      steps = std::max(steps, (rows + own - 1) / own);
    }
    options.replica = 0;
    EXPECT_EQ(std::ssize(all), options.rows);
    EXPECT_EQ(SampleOrder(options).epoch_steps(1), steps);
  }
}

// So a step has the rows of a step of one replica, and equal numbers have the order from before.
TEST(SampleOrder, UnequalReplicasTakeTheRowsOfOneReplicaIfNotShuffled) {
  const SampleOrder one({.rows = 48, .rows_per_step = 8, .shuffle = false});
  for (std::int64_t step = 0; step < 6; ++step) {
    std::vector<std::int64_t> all;
    for (std::int64_t replica = 0; replica < 3; ++replica) {
      const SampleOrder order({.rows = 48,
                               .replicas = 3,
                               .replica = replica,
                               .rows_by_replica = {5, 1, 2},
                               .shuffle = false});
      const auto own = numbers_of(order.samples(store::Step{step}));
      all.insert(all.end(), own.begin(), own.end());
    }
    std::ranges::sort(all);
    EXPECT_EQ(all, numbers_of(one.samples(store::Step{step})));
  }
  const SampleOrder stated(
      {.seed = 3, .rows = 50, .replicas = 2, .replica = 1, .rows_by_replica = {4, 4}});
  const SampleOrder equal({.seed = 3, .rows = 50, .replicas = 2, .replica = 1, .rows_per_step = 4});
  EXPECT_EQ(stream_of(stated, 20), stream_of(equal, 20));
}

TEST(SampleOrder, RefusesAStepLargerThanTheSmallestShard) {
  for (std::int64_t replica = 0; replica < 2; ++replica) {
    expect_store_error(
        store::StoreError::Kind::bad_input, {"12 rows", "only 11", "2 replicas"}, [&] {
          SampleOrder order({.rows = 11, .replicas = 2, .replica = replica, .rows_per_step = 6});
        });
  }
  EXPECT_THROW(SampleOrder({.rows = 4, .replicas = 2, .replica = 2}), std::invalid_argument);
  EXPECT_THROW(SampleOrder({.rows = 4}).samples(store::Step{-1}), std::out_of_range);
}

}  // namespace
}  // namespace strait::data
