#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "framework/net/frame_memory.h"
#include "framework/sync/slots.h"

namespace strait::sync {

// What a replica's model looks like: hashes of some of its pieces, others at every round, so that a
// fork is found within a few rounds and named by its tensors.
struct ModelLook {
  struct Piece {
    std::uint32_t index = 0;  // in the layout
    std::uint64_t hash = 0;
  };
  std::vector<Piece> pieces;
};

// Of this round's share of the pieces, in this slot.
ModelLook look_at_model(const Slots& slots, const std::string& slot, std::uint64_t round);

void append_look(const ModelLook& look, net::Frame& out);
// SyncError corrupt where the bytes are no look at all.
ModelLook read_look(std::span<const std::byte> bytes);

// The names of the pieces that differ; looks of the same round.
std::vector<std::string> differences(const Layout& layout, const ModelLook& mine,
                                     const ModelLook& theirs);

}  // namespace strait::sync
