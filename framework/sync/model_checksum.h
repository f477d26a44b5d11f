#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "framework/net/frame_memory.h"
#include "framework/sync/slots.h"

namespace strait::sync {

// Hashes of some pieces of a replica's model, other pieces in each round. Members compare them, so
// a fork is found within a few rounds, and the differing tensors are known by name.
struct ModelChecksum {
  struct Piece {
    std::uint32_t index = 0;  // in the layout
    std::uint64_t hash = 0;
  };
  std::vector<Piece> pieces;
};

// By index: this round's share of the pieces.
std::vector<std::size_t> checked_pieces(const Layout& layout, std::uint64_t round);

// Of this round's share, in this slot.
ModelChecksum checksum_model(const Slots& slots, const std::string& slot, std::uint64_t round);

void append_checksum(const ModelChecksum& checksum, net::Frame& out);
// SyncError (corrupt) if the bytes are not a whole number of entries.
ModelChecksum read_checksum(std::span<const std::byte> bytes);

// The names of the pieces that differ; both checksums are of the same round.
std::vector<std::string> differences(const Layout& layout, const ModelChecksum& mine,
                                     const ModelChecksum& theirs);

}  // namespace strait::sync
