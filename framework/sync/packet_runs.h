#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "framework/sync/grid.h"
#include "framework/sync/random_choice.h"

namespace strait::sync {

// Blocks of a packet, one behind the other, that share a grid: those of one dense piece, or some
// that are not dense.
struct PacketRun {
  std::size_t first = 0;  // block
  std::size_t count = 0;
  bool dense = false;
  Grid grid;
  std::size_t first_value = 0;  // of those that are sent
  std::size_t values = 0;

  // Of zeros alone nothing is coded.
  bool silent() const { return grid.threshold == 0; }
  bool levelled() const { return !silent() && grid.most_level > 0; }
};

// `grid`: of what is not dense.
std::vector<PacketRun> packet_runs(std::span<const Block> blocks, const Grid& grid);

template <class Value>
std::span<Value> blocks_within(std::span<Value> by_block, const PacketRun& run) {
  return by_block.subspan(run.first, run.count);
}

template <class Value>
std::span<Value> values_within(std::span<Value> by_value, const PacketRun& run) {
  return by_value.subspan(run.first_value, run.values);
}

}  // namespace strait::sync
