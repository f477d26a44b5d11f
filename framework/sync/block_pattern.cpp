#include "framework/sync/block_pattern.h"

#include <array>
#include <bit>

namespace strait::sync {
namespace {

constexpr std::size_t kPatterns = std::size_t{1} << 16;

constexpr std::size_t class_of_count(int count) {
  return count == 16 ? 15 : count == 15 ? 14 : static_cast<std::size_t>(count);
}

struct PatternTable {
  std::array<std::uint32_t, kPatternClasses> sizes{};
  std::array<std::uint32_t, kPatternClasses> begins{};
  std::array<std::uint16_t, kPatterns> places{};    // by pattern
  std::array<std::uint16_t, kPatterns> patterns{};  // by class and place
};

PatternTable made_table() {
  PatternTable table;
  for (std::size_t i = 0; i < kPatterns; ++i) {
    const std::size_t found = class_of_count(std::popcount(i));
    table.places[i] = static_cast<std::uint16_t>(table.sizes[found]++);
  }
  for (std::size_t i = 1; i < kPatternClasses; ++i) {
    table.begins[i] = table.begins[i - 1] + table.sizes[i - 1];
  }
  for (std::size_t i = 0; i < kPatterns; ++i) {
    const std::size_t found = class_of_count(std::popcount(i));
    table.patterns[table.begins[found] + table.places[i]] = static_cast<std::uint16_t>(i);
  }
  return table;
}

const PatternTable& pattern_table() {
  static const PatternTable kTable = made_table();
  return kTable;
}

}  // namespace

PatternPlace place_of(std::uint16_t pattern) {
  return {class_of_count(std::popcount(pattern)), pattern_table().places[pattern]};
}

std::uint16_t pattern_at(PatternPlace place) {
  const PatternTable& table = pattern_table();
  return table.patterns[table.begins[place.pattern_class] + place.place];
}

std::uint32_t patterns_of(std::size_t pattern_class) {
  return pattern_table().sizes[pattern_class];
}

unsigned most_values(std::size_t pattern_class) {
  return static_cast<unsigned>(pattern_class < 14 ? pattern_class : pattern_class + 1);
}

}  // namespace strait::sync
