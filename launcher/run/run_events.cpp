#include "launcher/run/run_events.h"

namespace strait::run {

RunEvent training_event(store::Step from, store::Step to) {
  return {"training", {{"from", store::number(from)}, {"to", store::number(to)}}};
}

RunEvent checkpoint_event(store::Step step) {
  return {"checkpoint", {{"step", store::number(step)}}};
}

RunEvent checkpoint_failed_event(store::Step step, const std::string& text) {
  return {"checkpoint_failed", {{"step", store::number(step)}, {"text", text}}};
}

RunEvent stage_event(const std::string& source, const Event& event) {
  return {"stage_event", {{"source", source}, {"name", event.name}, {"text", event.text}}};
}

RunEvent standstill_event(const std::string& why) {
  return {why.empty() ? "moving" : "standstill", {{"text", why}}};
}

RunEvent stopping_event(bool now) { return {"stopping", {{"now", now}}}; }

RunEvent event_of(const Evaluated& evaluated) {
  RunEvent event{"evaluated",
                 {{"step", store::number(evaluated.step)},
                  {"loss", evaluated.loss},
                  {"tokens", evaluated.tokens}}};
  if (evaluated.margin) event.fields["margin"] = *evaluated.margin;
  if (evaluated.accuracy) event.fields["accuracy"] = *evaluated.accuracy;
  return event;
}

RunEvent event_of(const ReplicasAbsent& absent) {
  return {"replicas_absent", {{"absent", absent.absent}, {"replicas", absent.present}}};
}

RunEvent event_of(const ReplicaLeft& gone) {
  return {"replica_left",
          {{"replica", gone.replica},
           {"step", store::number(gone.step)},
           {"text", gone.why},
           {"replicas", gone.remaining}}};
}

RunEvent event_of(const RejoinAttempt& attempt) {
  return {attempt.failure.empty() ? "rejoin_started" : "rejoin_failed",
          {{"replica", attempt.replica}, {"text", attempt.failure}}};
}

RunEvent event_of(const ReplicaJoined& joined) {
  return {"replica_joined",
          {{"replica", joined.replica},
           {"step", store::number(joined.step)},
           {"replicas", joined.replicas}}};
}

RunEvent event_of(const Restart& restart) {
  return {"restart",
          {{"number", restart.number},
           {"limit", restart.limit},
           {"generation", restart.generation},
           {"from", store::number(restart.from)},
           {"cause", restart.cause},
           {"moves", restart.moves}}};
}

RunEvent event_of(const Outcome& outcome) { return {"ended", to_json(outcome)}; }

}  // namespace strait::run
