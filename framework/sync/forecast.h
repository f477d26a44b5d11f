#pragma once

#include "framework/sync/layout.h"
#include "framework/sync/methods.h"

namespace strait::sync {

// What a method costs one replica of a stage.
struct Forecast {
  // Sent to other replicas, heads of frames included; all replicas' mean.
  double step_bytes = 0;   // a run's mean; rounds that only looking at the model takes not counted
  double round_bytes = 0;  // in the heaviest step of an ordinary span
  double slot_bytes = 0;   // memory for the method's own slots, and copies of them
  // Steps from an update of one replica until it is in the model of the others, on average.
  double age = 0;
};

// From settings and shapes alone. SyncError (setting) as make_method().
Forecast forecast(const SyncSettings& settings, const Layout& layout, std::size_t members);

}  // namespace strait::sync
