#pragma once

#include "framework/coding/lane_coder.h"
#include "framework/coding/symbol_model.h"
#include "framework/sync/grid.h"

namespace strait::sync {

// Which of a block's 16 values are sent: a class (their number, which an adaptive model codes) and
// the pattern's index within its class, whose patterns are equally likely. 14 and 15 share a class,
// so that there are 16 classes.
inline constexpr std::size_t kPatternClasses = 16;
inline constexpr std::uint16_t kWholePattern = 0xFFFF;

// The number of values it sends. In plain C++, since std::popcount is slow on processors without
// the instruction, and the build targets those.
inline std::size_t values_in(std::uint16_t pattern) {
  std::uint32_t bits = pattern;
  bits -= bits >> 1U & 0x5555U;
  bits = (bits & 0x3333U) + (bits >> 2U & 0x3333U);
  bits = (bits + (bits >> 4U)) & 0x0F0FU;
  return (bits + (bits >> 8U)) & 0x1FU;
}

inline std::size_t class_of(std::uint16_t pattern) {
  const std::size_t values = values_in(pattern);
  return values - (values >= 15 ? 1 : 0);
}

// The largest number of values of a pattern of the class.
inline unsigned most_values(std::size_t pattern_class) {
  return static_cast<unsigned>(pattern_class < 14 ? pattern_class : pattern_class + 1);
}

// The indices of patterns within their classes: that of patterns[i] in lane `first` + i.
void put_patterns(coding::LaneWriter& writer, std::size_t first,
                  std::span<const std::uint16_t> patterns);
void take_patterns(coding::LaneReader& reader, std::size_t first,
                   std::span<const std::uint8_t> classes, std::span<std::uint16_t> patterns);

// The adaptive models of blocks, the same on both ends. The context of a block's class (the number
// of values it sends) is the recent number of values per block, since rows and layers differ. The
// context of a level is the number of values that its block sends.
class BlockModels {
 public:
  // The initial guess: the share of values that is sent, and the ratio of the probabilities of
  // adjacent levels.
  BlockModels(double share, double decay, coding::SymbolModel::End end);

  // The classes of consecutive blocks; that of the i-th in lane `first` + i.
  void put_classes(coding::LaneWriter& writer, std::size_t first,
                   std::span<const std::uint16_t> patterns);
  void take_classes(coding::LaneReader& reader, std::size_t first, std::span<std::uint8_t> classes);

  // The levels, without their plain bits, of the values that these patterns send; that of the i-th
  // in lane `first` + i. SyncError (corrupt) for a level beyond the grid's last.
  void put_levels(coding::LaneWriter& writer, std::size_t first,
                  std::span<const std::uint16_t> patterns, std::span<const std::int32_t> levels,
                  const Grid& grid);
  void take_levels(coding::LaneReader& reader, std::size_t first,
                   std::span<const std::uint16_t> patterns, std::span<std::int32_t> levels,
                   const Grid& grid);

 private:
  static constexpr std::size_t kActivities = 8;
  static constexpr std::size_t kLevelContexts = 3;

  coding::SymbolModel& model_of_class();
  void count(std::size_t pattern_class);
  void find_contexts(std::span<const std::uint16_t> patterns, std::size_t values);

  std::array<coding::SymbolModel, kActivities> classes_;
  std::array<coding::SymbolModel, kLevelContexts> levels_;
  int activity_;                        // 128 times the recent number of values per block
  std::vector<std::uint8_t> contexts_;  // of each value's level
};

}  // namespace strait::sync
