#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "framework/sync/lane_coder.h"

namespace strait::sync {

// Which of a block's 16 values are sent, as a class (how many: what the coder learns about) and a
// place among the patterns of that class, which are all equally likely. 14 and 15 share a class,
// so that there are 16.
struct PatternPlace {
  std::size_t pattern_class = 0;
  std::uint32_t place = 0;
};

inline constexpr std::size_t kPatternClasses = 16;

PatternPlace place_of(std::uint16_t pattern);
std::uint16_t pattern_at(PatternPlace place);  // place.place < patterns_of(place.pattern_class)
std::uint32_t patterns_of(std::size_t pattern_class);
// The most values that a pattern of the class has.
unsigned most_values(std::size_t pattern_class);

// The places of patterns, given their classes: that of patterns[i] in lane `first` + i.
void put_places(LaneWriter& writer, std::size_t first, std::span<const std::uint16_t> patterns);
void take_places(LaneReader& reader, std::size_t first, std::span<const std::uint8_t> classes,
                 std::span<std::uint16_t> patterns);

}  // namespace strait::sync
