#pragma once

#include "framework/coding/lane_coder.h"
#include "framework/net/frame_memory.h"
#include "framework/sync/random_choice.h"
#include "framework/sync/top_values.h"

// One part's values: lossy in positions and values, then entropy coded without loss. PACKET.md has
// the bytes. The same values in the same blocks make the same bytes on every machine, wherever the
// blocks lie in the flat space.
namespace strait::sync {

struct PacketSettings {
  // The share of the values that is sent, largest first; dense values are all sent.
  double top = 0.2;
  // 1 to 8; see grid.h.
  int bits = 4;
};

// The content of a packet as readers decode it, which the writer computes with, too.
struct SparseValues {
  std::vector<std::uint16_t> patterns;  // by block: bit i: value i is sent
  std::vector<float> values;            // the sent ones, one after the other

  bool operator==(const SparseValues&) const = default;
};

// Scratch memory of writers and readers. Keep it: to allocate it anew takes as long as a packet.
struct PacketScratch {
  TopValues top;
  coding::LaneWriter writer;
  std::vector<std::int32_t> levels;
  std::vector<std::byte> plain;
};

// Appends the packet of `values` (kGrain of each block, zero in padding, each below
// kMostMagnitude); `sent` becomes what readers decode.
void write_packet(std::span<const Block> blocks, std::span<const float> values,
                  const PacketSettings& settings, PacketScratch& scratch, net::Frame& out,
                  SparseValues& sent);

// SyncError (corrupt) if the bytes are not a packet of these blocks. All decoded values are finite.
void read_packet(std::span<const Block> blocks, std::span<const std::byte> bytes,
                 PacketScratch& scratch, SparseValues& sent);

// Adds the sent values to the blocks' values.
void add_to(std::span<float> values, const SparseValues& sent, float factor = 1);

}  // namespace strait::sync
