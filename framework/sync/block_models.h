#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "framework/sync/grid.h"
#include "framework/sync/symbol_model.h"

namespace strait::sync {

// The probabilities by which blocks are coded, the same on both ends. How many of a block's values
// are sent (its pattern's class) is learned by how many were in the blocks before it: rows and
// layers differ. Levels are learned by how many are sent.
class BlockModels {
 public:
  // The share of values that is sent, and how levels fall off, before anything was learned.
  BlockModels(double share, double decay, SymbolModel::End end);

  // The classes of blocks that follow one another; that of the i-th in lane `first` + i.
  void put_classes(LaneWriter& writer, std::size_t first, std::span<const std::uint16_t> patterns);
  void take_classes(LaneReader& reader, std::size_t first, std::span<std::uint8_t> classes);

  // The levels, less the bits that are plain, of the values that these patterns send; that of the
  // i-th in lane `first` + i. SyncError where a level is beyond the grid's.
  void put_levels(LaneWriter& writer, std::size_t first, std::span<const std::uint16_t> patterns,
                  std::span<const std::int32_t> levels, const Grid& grid);
  void take_levels(LaneReader& reader, std::size_t first, std::span<const std::uint16_t> patterns,
                   std::span<std::int32_t> levels, const Grid& grid);

 private:
  static constexpr std::size_t kActivities = 8;
  static constexpr std::size_t kCrowds = 3;

  SymbolModel& model_of_class();
  void count(std::size_t pattern_class);
  void find_crowds(std::span<const std::uint16_t> patterns, std::size_t values);

  std::array<SymbolModel, kActivities> classes_;
  std::array<SymbolModel, kCrowds> levels_;
  int activity_;                      // 128 times the values that a block had of late
  std::vector<std::uint8_t> crowds_;  // by value
};

}  // namespace strait::sync
