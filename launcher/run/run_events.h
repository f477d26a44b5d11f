#pragma once

#include <nlohmann/json.hpp>

#include "launcher/run/control_message.h"
#include "launcher/run/outcome.h"
#include "launcher/run/run_observer.h"

// The events of a run as JSON (docs/metrics.md), for events.jsonl and for --json. All functions are
// pure.
namespace strait::run {

struct RunEvent {
  const char* name;
  nlohmann::ordered_json fields;
};

RunEvent training_event(store::Step from, store::Step to);
RunEvent checkpoint_event(store::Step step);
RunEvent checkpoint_failed_event(store::Step step, const std::string& text);
RunEvent stage_event(const std::string& source, const Event& event);
RunEvent standstill_event(const std::string& why);  // without a reason: "moving"
RunEvent stopping_event(bool now);
RunEvent event_of(const Evaluated& evaluated);
RunEvent event_of(const ReplicasAbsent& absent);
RunEvent event_of(const ReplicaLeft& gone);
RunEvent event_of(const RejoinAttempt& attempt);
RunEvent event_of(const ReplicaJoined& joined);
RunEvent event_of(const Restart& restart);
RunEvent event_of(const Outcome& outcome);

}  // namespace strait::run
