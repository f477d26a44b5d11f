#pragma once

#include <functional>
#include <string>

#include "framework/net/link.h"
#include "framework/sync/slots.h"
#include "stages/adamw.h"

namespace strait::stages {

// All that a replica needs to take part beside those that are there: the model that they agree on
// (in the slot of this name), the optimizer's moments and counters, and of the sync method's slots
// those that are the same on all. From the memory of one of them to the one that comes, over the
// link between them, between two steps of the one that gives.
//
// Throws what the link throws.
void give_state(const sync::Slots& slots, const std::string& model, const AdamW& optimizer,
                net::Link& link);

// Everything else (weights aside, which are the model then) stays as it is. `look` is called while
// this waits, and with every part that comes; it throws to give up. CodecError: what comes is no
// such state of a stage like this one.
void take_state(sync::Slots& slots, const std::string& model, AdamW& optimizer, net::Link& link,
                const std::function<void(bool came)>& look);

}  // namespace strait::stages
