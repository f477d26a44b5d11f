#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "framework/coding/symbol_model.h"
#include "framework/sync/grid.h"

namespace strait::sync {

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
