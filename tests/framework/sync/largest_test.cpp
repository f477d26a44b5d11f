#include <gtest/gtest.h>

#include <array>
#include <bit>
#include <functional>
#include <random>

#include "framework/sync/top_values.h"

namespace strait::sync {
namespace {

std::vector<float> random_values(std::mt19937_64& random) {
  std::vector<float> values(random() % 3000);
  std::normal_distribution<float> normal(0,
                                         std::ldexp(1.0F, static_cast<int>(random() % 200) - 100));
  const bool few_values = random() % 3 == 0;
  const std::uint64_t zeros = random() % 4;
  for (float& value : values) {
    value = normal(random);
    if (few_values)
      value = std::bit_cast<float>(0xBF800000U + static_cast<std::uint32_t>(random() % 5));
    if (random() % 4 < zeros) value = 0;
  }
  return values;
}

TEST(Largest, SelectsExactlyTheWantedNumberAndNoZero) {
  for (std::uint64_t seed = 0; seed < 2000; ++seed) {
    std::mt19937_64 random(seed);
    const auto values = random_values(random);
    const std::size_t wanted = random() % (values.size() + 3);
    const std::size_t cut = random() % (values.size() + 1);
    const std::array stretches = {std::span(values).first(cut), std::span(values).subspan(cut)};
    std::vector<std::int32_t> room;
    const Largest largest = largest_of(stretches, wanted, room);

    std::vector<std::int32_t> sorted;
    for (const float value : values) sorted.push_back(magnitude_of(value));
    std::sort(sorted.begin(), sorted.end(), std::greater<>());
    const auto positive =
        static_cast<std::size_t>(std::find(sorted.begin(), sorted.end(), 0) - sorted.begin());
    ASSERT_EQ(largest.count, std::min(wanted, positive)) << "seed " << seed;
    if (largest.count == 0) {
      ASSERT_EQ(largest.least, 0);
      continue;
    }
    ASSERT_EQ(largest.least, sorted[largest.count - 1]) << "seed " << seed;
    const auto above = static_cast<std::size_t>(
        std::count_if(sorted.begin(), sorted.end(),
                      [&](std::int32_t magnitude) { return magnitude > largest.least; }));
    ASSERT_EQ(above + largest.ties, largest.count) << "seed " << seed;
    ASSERT_GE(largest.ties, 1U);
  }
}

}  // namespace
}  // namespace strait::sync
