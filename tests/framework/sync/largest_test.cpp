#include "framework/sync/largest.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <functional>
#include <random>
#include <vector>

namespace strait::sync {
namespace {

std::vector<std::uint32_t> random_magnitudes(std::mt19937_64& random) {
  std::vector<std::uint32_t> magnitudes(random() % 3000);
  std::normal_distribution<float> normal(0,
                                         std::ldexp(1.0F, static_cast<int>(random() % 200) - 100));
  const bool few_values = random() % 3 == 0;
  const std::uint64_t zeros = random() % 4;
  for (std::uint32_t& magnitude : magnitudes) {
    magnitude = std::bit_cast<std::uint32_t>(std::abs(normal(random)));
    if (few_values) magnitude = 0x3F800000U + static_cast<std::uint32_t>(random() % 5);
    if (random() % 4 < zeros) magnitude = 0;
  }
  return magnitudes;
}

TEST(Largest, TakesExactlyAsManyAsAreWantedAndNoZero) {
  for (std::uint64_t seed = 0; seed < 2000; ++seed) {
    std::mt19937_64 random(seed);
    const auto magnitudes = random_magnitudes(random);
    const std::size_t wanted = random() % (magnitudes.size() + 3);
    const Largest largest = largest_of(magnitudes, wanted);

    auto sorted = magnitudes;
    std::sort(sorted.begin(), sorted.end(), std::greater<>());
    const auto positive =
        static_cast<std::size_t>(std::find(sorted.begin(), sorted.end(), 0U) - sorted.begin());
    ASSERT_EQ(largest.count, std::min(wanted, positive)) << "seed " << seed;
    if (largest.count == 0) {
      ASSERT_EQ(largest.least, 0U);
      continue;
    }
    ASSERT_EQ(largest.least, sorted[largest.count - 1]) << "seed " << seed;
    const auto above = static_cast<std::size_t>(
        std::count_if(sorted.begin(), sorted.end(),
                      [&](std::uint32_t magnitude) { return magnitude > largest.least; }));
    ASSERT_EQ(above + largest.ties, largest.count) << "seed " << seed;
    ASSERT_GE(largest.ties, 1U);
  }
}

}  // namespace
}  // namespace strait::sync
