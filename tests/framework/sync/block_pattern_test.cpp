#include <gtest/gtest.h>

#include <bit>
#include <numeric>

#include "framework/sync/block_models.h"

namespace strait::sync {
namespace {

std::vector<std::uint16_t> all_patterns() {
  std::vector<std::uint16_t> patterns(65536);
  std::iota(patterns.begin(), patterns.end(), std::uint16_t{0});
  return patterns;
}

TEST(BlockPattern, PatternsRoundTrip) {
  const std::vector<std::uint16_t> patterns = all_patterns();
  std::vector<std::uint8_t> classes;
  for (const std::uint16_t pattern : patterns) {
    classes.push_back(static_cast<std::uint8_t>(class_of(pattern)));
  }
  for (const std::size_t first : {0, 1, 2, 3}) {
    coding::LaneWriter writer;
    put_patterns(writer, first, patterns);
    net::Frame message;
    writer.finish({}, message);
    coding::LaneReader reader(message);
    std::vector<std::uint16_t> read(patterns.size());
    take_patterns(reader, first, classes, read);
    ASSERT_EQ(read, patterns);
    std::vector<std::byte> plain;
    EXPECT_TRUE(reader.finish(0, plain));
  }
}

TEST(BlockPattern, ClassesCountValues) {
  std::array<int, kPatternClasses> sizes{};
  for (const std::uint16_t pattern : all_patterns()) {
    const auto values = static_cast<unsigned>(std::popcount(pattern));
    ASSERT_EQ(values_in(pattern), values);
    ASSERT_LT(class_of(pattern), kPatternClasses);
    ASSERT_LE(values, most_values(class_of(pattern)));
    ++sizes[class_of(pattern)];
  }
  EXPECT_EQ(sizes, (std::array{1, 16, 120, 560, 1820, 4368, 8008, 11440, 12870, 11440, 8008, 4368,
                               1820, 560, 120 + 16, 1}));
}

}  // namespace
}  // namespace strait::sync
