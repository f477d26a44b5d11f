#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "framework/coding/lane_coder.h"
#include "framework/net/frame_memory.h"
#include "framework/sync/grid.h"
#include "framework/sync/random_choice.h"

// The sections of a packet (packet.h); PACKET.md has the bytes.
namespace strait::sync {

inline constexpr std::size_t kPacketHeaderBytes = 6;

// The header describes the values that are not dense.
struct PacketHeader {
  int bits = 0;
  std::uint32_t share = 0;  // of 255, that is sent; only the coder's initial guess
  float threshold = 0;      // 0: none is sent
  float step = 0;

  // The fields as they are sent, and a step that suits the mean. `least`: of the sent magnitudes.
  static PacketHeader of(int bits, double share, float least, double mean);

  double guess() const;  // the share, within the coder's limits
  Grid grid() const { return grid_above(threshold, step, bits); }
  // Bits of a value that no model predicts: its sign, and the low bits of its level.
  unsigned plain_bits() const { return 1 + grid().plain_bits; }
};

void append_packet_header(const PacketHeader& header, net::Frame& out);
// SyncError (corrupt) if the bytes do not begin with a valid header.
PacketHeader read_packet_header(std::span<const std::byte> bytes);

// Consecutive blocks of a packet that share a grid: those of one dense piece, or some that are not
// dense.
struct PacketRun {
  std::size_t first = 0;  // block
  std::size_t count = 0;  // blocks
  bool dense = false;
  Grid grid;
  std::size_t first_value = 0;  // index among the values that are sent
  std::size_t values = 0;       // that are sent
  // Nothing is coded of a run of zeros.
  bool all_zero() const { return grid.threshold == 0; }
  bool has_levels() const { return !all_zero() && grid.most_level > 0; }
};

// `grid`: of the runs that are not dense.
std::vector<PacketRun> packet_runs(std::span<const Block> blocks, const Grid& grid);

template <class Value>
std::span<Value> blocks_within(std::span<Value> by_block, const PacketRun& run) {
  return by_block.subspan(run.first, run.count);
}

template <class Value>
std::span<Value> values_within(std::span<Value> by_value, const PacketRun& run) {
  return by_value.subspan(run.first_value, run.values);
}

// The entropy-coded symbols of a packet: the grids of dense runs, then which values of each block
// are sent, then the upper bits of their levels. One after the other, so that each is a loop
// without unpredictable branches.
void put_symbols(const PacketHeader& header, std::span<const PacketRun> runs,
                 std::span<const std::uint16_t> patterns, std::span<const std::int32_t> levels,
                 coding::LaneWriter& writer);
// Fills in the patterns (zero before), the levels, and the grids and value counts of the runs.
// SyncError (corrupt) if no writer makes such symbols.
void take_symbols(const PacketHeader& header, std::span<const Block> blocks,
                  coding::LaneReader& reader, std::span<PacketRun> runs,
                  std::span<std::uint16_t> patterns, std::vector<std::int32_t>& levels);

}  // namespace strait::sync
