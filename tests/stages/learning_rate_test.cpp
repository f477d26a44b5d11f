#include <gtest/gtest.h>

#include "stages/adamw.h"

namespace strait::stages {
namespace {

TEST(LearningRate, WarmupIsLinearAndFirstStepIsNotZero) {
  const LearningRateOptions options{.peak = 8.0, .warmup = 4, .steps = 10, .decay = Decay::cosine};
  EXPECT_DOUBLE_EQ(learning_rate(options, 0), 2.0);
  EXPECT_DOUBLE_EQ(learning_rate(options, 3), 8.0);
  EXPECT_DOUBLE_EQ(learning_rate(options, 4), 8.0);
}

TEST(LearningRate, EveryDecayFallsFromPeakToEnd) {
  for (const Decay decay : {Decay::cosine, Decay::linear}) {
    const LearningRateOptions options{.peak = 1.0, .warmup = 0, .steps = 100, .decay = decay};
    for (std::int64_t step = 1; step < 100; ++step) {
      EXPECT_LT(learning_rate(options, step), learning_rate(options, step - 1));
    }
    EXPECT_NEAR(learning_rate(options, 50), 0.5, 1e-12);
    EXPECT_GT(learning_rate(options, 99), 0.0);
    EXPECT_NEAR(learning_rate(options, 100), 0.0, 1e-12);
    EXPECT_NEAR(learning_rate(options, 5000), 0.0, 1e-12);
  }
  const LearningRateOptions constant{.peak = 1.0, .steps = 3, .decay = Decay::constant};
  EXPECT_DOUBLE_EQ(learning_rate(constant, 1000), 1.0);
}

TEST(LearningRate, DecaysEndAtTheLeastRate) {
  for (const Decay decay : {Decay::cosine, Decay::linear}) {
    const LearningRateOptions options{
        .peak = 1.0, .least = 0.2, .warmup = 10, .steps = 110, .decay = decay};
    EXPECT_DOUBLE_EQ(learning_rate(options, 10), 1.0);
    EXPECT_NEAR(learning_rate(options, 60), 0.6, 1e-12);
    EXPECT_NEAR(learning_rate(options, 110), 0.2, 1e-12);
    EXPECT_NEAR(learning_rate(options, 5000), 0.2, 1e-12);
  }
}

// transformers.get_inverse_sqrt_schedule, whose rate of a step is that of ours before it.
TEST(LearningRate, InverseSquareRootFallsByTheWarmup) {
  LearningRateOptions options{.peak = 1.0, .warmup = 100, .steps = 9, .decay = Decay::inverse_sqrt};
  EXPECT_DOUBLE_EQ(learning_rate(options, 100), 1.0);
  EXPECT_DOUBLE_EQ(learning_rate(options, 400), 0.5);
  options.warmup = 0;
  EXPECT_DOUBLE_EQ(learning_rate(options, 0), 1.0);
  EXPECT_DOUBLE_EQ(learning_rate(options, 30'000), 0.5);
}

TEST(LearningRate, WarmupLongerThanRunOnlyRises) {
  const LearningRateOptions options{.peak = 1.0, .warmup = 50, .steps = 10, .decay = Decay::linear};
  for (std::int64_t step = 1; step < 10; ++step) {
    EXPECT_GT(learning_rate(options, step), learning_rate(options, step - 1));
  }
}

}  // namespace
}  // namespace strait::stages
