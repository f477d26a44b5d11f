#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "framework/net/frame_memory.h"
#include "framework/sync/lane_coder.h"
#include "framework/sync/random_choice.h"
#include "framework/sync/survivors.h"

namespace strait::sync {

// How many of the chosen values are sent, and how finely.
struct PacketSettings {
  double top = 0.2;  // the share that is sent of what is not dense, largest first
  int bits = 4;      // 1 to 8: see grid.h
};

// What a packet says, and so what both ends compute with.
struct SparseValues {
  std::vector<std::uint16_t> patterns;  // by block: bit i: value i is sent
  std::vector<float> values;            // those that are sent, one behind the other
  bool operator==(const SparseValues&) const = default;
};

// Memory that packets are made and read in. Worth keeping: to get it anew from the system takes as
// long as to use it.
struct PacketRoom {
  Survivors survivors;
  LaneWriter writer;
  std::vector<std::int32_t> levels;
  std::vector<std::byte> plain;
};

// One part's values, lossily in positions and values, then losslessly in as few bytes as they
// take; byte by byte in PACKET.md. The same values in the same blocks make the same bytes on every
// machine, wherever the blocks lie in the flat space.
//
// Appends the packet of `values`, kGrain of each block, zero in padding, below kMostMagnitude each;
// `sent` becomes what is read of it.
void write_packet(std::span<const Block> blocks, std::span<const float> values,
                  const PacketSettings& settings, PacketRoom& room, net::Frame& out,
                  SparseValues& sent);

// SyncError where the bytes are no packet of these blocks. All that it reads is finite.
void read_packet(std::span<const Block> blocks, std::span<const std::byte> bytes, PacketRoom& room,
                 SparseValues& sent);

// Adds what was sent to the blocks' values.
void add_to(std::span<float> values, const SparseValues& sent);

}  // namespace strait::sync
