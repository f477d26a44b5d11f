#include "framework/sync/grid.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <random>

namespace strait::sync {
namespace {

Grid random_grid(std::mt19937_64& random, float scale, int bits) {
  const float unit = static_cast<float>(random() >> 40U) * 0x1p-24F + 0.01F;
  const float step = step_of(step_code(scale * unit));
  if (random() % 3 == 0) return grid_around_zero(step, bits);
  return grid_above(threshold_below(scale * (1 + unit)), step, bits);
}

// One rounding, with or without fused multiply-add, so that different machines agree.
TEST(Grid, RoundsValueOnce) {
  std::mt19937_64 random(1);
  for (int round = 0; round < 200'000; ++round) {
    const int bits = 1 + static_cast<int>(random() % 8);
    const float scale = std::ldexp(1.0F, static_cast<int>(random() % 180) - 90);
    const Grid grid = random_grid(random, scale, bits);
    const auto level =
        static_cast<std::int32_t>(random() % (static_cast<std::uint64_t>(grid.most_level) + 1));
    const auto units = static_cast<float>(level * 64 + grid.offset);
    ASSERT_EQ(grid.value(level), std::fma(units, grid.step / 64, grid.threshold));
    ASSERT_EQ(static_cast<double>(units) * static_cast<double>(grid.step / 64),
              static_cast<double>(units * (grid.step / 64)));
    ASSERT_TRUE(std::isfinite(grid.value(level)));
  }
}

TEST(Grid, ReadsMagnitudeWithinItsStep) {
  std::mt19937_64 random(2);
  for (int round = 0; round < 200'000; ++round) {
    const int bits = 2 + static_cast<int>(random() % 7);
    const float scale = std::ldexp(1.0F, static_cast<int>(random() % 180) - 90);
    const Grid grid = random_grid(random, scale, bits);
    const float magnitude =
        grid.threshold + grid.step * static_cast<float>(random() % 1000) * 0.37F;
    const std::int32_t level = grid.level(magnitude);
    ASSERT_LE(std::abs(grid.value(level) - magnitude), grid.step * 1.001F + magnitude * 1e-6F);
    if (level < 1000) {
      ASSERT_LE(std::abs(grid.level(grid.value(level)) - level), 1);
    }
  }
}

TEST(Grid, ClampsToLastLevel) {
  const Grid grid = grid_above(1, 0x1p-10F, 4);
  EXPECT_EQ(grid.level(1e30F), Grid::kMostLevel);
  EXPECT_EQ(grid_above(1, 1, 1).level(1e30F), 0);
}

TEST(Grid, ReadsOneBitAsMean) {
  const float threshold = threshold_below(1.3F);
  const Grid grid = grid_above(threshold, step_of(step_code(step_above(threshold, 1.8, 1))), 1);
  EXPECT_NEAR(grid.value(0), 1.8, 0.03);
}

TEST(Grid, LevelsAroundZeroAreWholeSteps) {
  for (int bits = 1; bits <= 8; ++bits) {
    const Grid grid = grid_around_zero(0.25F, bits);
    EXPECT_EQ(grid.threshold, 0.125F);
    for (const std::int32_t level : {0, 1, 5, 1000, Grid::kMostLevel}) {
      EXPECT_EQ(grid.value(level), 0.25F * static_cast<float>(level + 1));
    }
    EXPECT_EQ(grid.level(0.125F), 0);
    EXPECT_EQ(grid.level(0.3749F), 0);
    EXPECT_EQ(grid.level(0.376F), 1);
  }
}

TEST(Grid, StepsRoundTrip) {
  std::mt19937_64 random(3);
  for (int round = 0; round < 100'000; ++round) {
    const float step = std::ldexp(1 + static_cast<float>(random() % 1000) / 1000,
                                  static_cast<int>(random() % 200) - 100);
    const std::uint32_t code = step_code(step);
    ASSERT_LT(code, kStepCodes);
    ASSERT_TRUE(step_is_sound(step_of(code)));
    ASSERT_NEAR(step_of(code) / step, 1, 0.017);
    ASSERT_EQ(step_code(step_of(code)), code);
  }
  EXPECT_EQ(step_code(0), 0U);
  EXPECT_EQ(step_of(0), 0);
  EXPECT_FALSE(step_is_sound(INFINITY));
  EXPECT_FALSE(step_is_sound(step_of(kStepCodes - 1)));  // NaN
}

}  // namespace
}  // namespace strait::sync
