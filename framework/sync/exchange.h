#pragma once

#include <functional>

#include "framework/sync/member_links.h"
#include "framework/sync/sync_method.h"

namespace strait::sync {

// What the one who exchanges hears of on the way.
struct ExchangeHooks {
  std::function<void(Range)> wait_until_ready;  // until this replica's part of a range can be told
  // From here on the round reads nothing that a trainer changes before it lands: by fold() and
  // arrived() what only landings change, and the model that members compare.
  std::function<void()> all_told;
};

// Takes a round from its plan to the point where it may land: tells, folds and collects, exchange
// by exchange, then makes sure that every member holds everything and that their models are the
// same. Waits for members; throws what links throw, and SyncError (fork, naming tensors and
// replicas; corrupt). Changes no slot.
void run_exchange(Round& round, SyncMethod& method, const Slots& slots, MemberLinks& links,
                  const ExchangeHooks& hooks);

}  // namespace strait::sync
