#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "framework/sync/grid.h"
#include "framework/sync/symbol_model.h"

namespace strait::sync {

// What a packet says of one block.
struct CodedBlock {
  std::uint16_t pattern = 0;            // bit i: value i is sent
  std::uint16_t signs = 0;              // bit j: the j-th that is sent is negative
  std::array<std::int32_t, 16> levels;  // of those that are sent, in order
};

// The probabilities by which blocks are coded, the same on both ends. How many of a block's values
// are sent is learned by how many were in the blocks before it: rows and layers differ. Levels are
// learned by how many are sent.
class BlockModels {
 public:
  // The share of values that is sent, and how levels fall off, before anything was learned.
  BlockModels(double share, double decay);

  void put(RangeEncoder& encoder, const CodedBlock& block, const Grid& grid);
  // SyncError where a level is beyond the grid's.
  void take(RangeDecoder& decoder, const Grid& grid, CodedBlock& block);

 private:
  static constexpr std::size_t kActivities = 8;
  static constexpr std::size_t kCrowds = 3;

  std::size_t activity() const;
  void count(int values) { activity_ += (values * 128 - activity_) / 8; }
  SymbolModel& levels_of(int values) { return levels_[values <= 2 ? 0 : values <= 5 ? 1 : 2]; }

  std::array<SymbolModel, kActivities> counts_;
  std::array<SymbolModel, kCrowds> levels_;
  int activity_;  // 128 times the values that a block had of late
};

}  // namespace strait::sync
