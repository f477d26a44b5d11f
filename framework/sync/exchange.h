#pragma once

#include <functional>

#include "framework/sync/member_links.h"
#include "framework/sync/replica_group.h"
#include "framework/sync/sync_method.h"

namespace strait::sync {

// Callbacks of an exchange into the engine.
struct ExchangeHooks {
  // Waits until this replica may encode its contribution to a range.
  std::function<void(Range)> wait_until_ready;
  // All contributions are encoded: from here on the round reads nothing that the trainer changes
  // before apply(). reduce() and decode() read only what apply() changes, and the checksum reads
  // the model slot.
  std::function<void()> all_encoded;
  // Of Pattern::group.
  GroupRounds rounds = {};
  WhileWaiting while_waiting = {};
};

// Carries a round from its plan to the point where it may be applied: encodes, reduces and collects
// results, exchange by exchange, then makes sure that every member holds everything and that their
// models are equal. Waits for members. Throws what links throw, and SyncError: fork, with the names
// of tensors and replicas; corrupt; membership_changed. Changes no slot.
void run_exchange(Round& round, SyncMethod& method, const Slots& slots, MemberLinks& links,
                  const ExchangeHooks& hooks);

}  // namespace strait::sync
