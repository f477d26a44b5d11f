#include "framework/sync/block_pattern.h"

#include <gtest/gtest.h>

#include <bit>
#include <set>

namespace strait::sync {
namespace {

TEST(BlockPattern, EveryPatternHasAPlaceOfItsOwnInItsClass) {
  std::set<std::pair<std::size_t, std::uint32_t>> places;
  for (std::uint32_t bits = 0; bits < 65536; ++bits) {
    const auto pattern = static_cast<std::uint16_t>(bits);
    const PatternPlace place = place_of(pattern);
    ASSERT_LT(place.pattern_class, kPatternClasses);
    ASSERT_LT(place.place, patterns_of(place.pattern_class));
    ASSERT_EQ(pattern_at(place), pattern);
    ASSERT_LE(static_cast<unsigned>(std::popcount(bits)), most_values(place.pattern_class));
    ASSERT_TRUE(places.emplace(place.pattern_class, place.place).second);
  }
  EXPECT_EQ(patterns_of(0), 1U);
  EXPECT_EQ(patterns_of(3), 560U);
  EXPECT_EQ(patterns_of(14), 136U);
  EXPECT_EQ(patterns_of(15), 1U);
}

}  // namespace
}  // namespace strait::sync
