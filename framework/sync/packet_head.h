#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "framework/net/frame_memory.h"
#include "framework/sync/grid.h"

namespace strait::sync {

inline constexpr std::size_t kPacketHeadBytes = 6;

// What a packet says first, of the values that are not dense.
struct PacketHead {
  int bits = 0;
  std::uint32_t share = 0;  // that is sent, of 255; only a guess that the coder begins with
  float threshold = 0;      // 0: none is
  float step = 0;

  // bits, share and threshold as they are sent, and a step that suits the mean.
  static PacketHead of(int bits, double share, float least, double mean);

  double guess() const;
  Grid grid() const { return grid_above(threshold, step, bits); }
  // As good as random of a value: its sign, and the low bits of its level.
  unsigned plain_bits() const { return 1 + grid().plain_bits; }
};

void append_packet_head(const PacketHead& head, net::Frame& out);
// SyncError where a packet does not begin so.
PacketHead read_packet_head(std::span<const std::byte> bytes);

}  // namespace strait::sync
