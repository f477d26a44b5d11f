#pragma once

#include "framework/net/frame_memory.h"
#include "framework/sync/member_links.h"
#include "framework/sync/replica_group.h"
#include "framework/sync/slots.h"
#include "framework/sync/sync_method.h"

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

// Callbacks of an exchange into the engine.
struct ExchangeHooks {
  // Waits until this replica may encode its contribution to a range.
  std::function<void(Range)> wait_until_ready;
  // All contributions are encoded: from here on the round reads nothing that the trainer changes
  // before apply(). reduce() and decode() read only what apply() changes, and the checksum reads
  // the model slot.
  std::function<void()> all_encoded;
  // Of Pattern::group and group_gather.
  GroupRounds rounds = {};
  WhileWaiting while_waiting = {};
};

// Carries a round from its plan to the point where it may be applied: encodes, reduces and collects
// results, exchange by exchange, then makes sure that every member holds everything and that their
// models are equal. Waits for members. Throws what links throw, and SyncError: fork, with the names
// of tensors and replicas; corrupt; membership_changed. Changes no slot, but for what a group does.
void run_exchange(Round& round, SyncMethod& method, const Slots& slots, MemberLinks& links,
                  const ExchangeHooks& hooks);

}  // namespace strait::sync
