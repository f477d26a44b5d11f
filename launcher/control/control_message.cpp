#include "launcher/control/control_message.h"

#include "launcher/control/message_frame.h"

namespace strait::launcher {

// The one list of fields of each message: read by the writer and by the reader.
void describe(auto& f, Is<LinkTraffic> auto& m) {
  f("name", m.name), f("peer", m.peer), f("sent_bytes", m.sent_bytes);
  f("received_bytes", m.received_bytes);
}
void describe(auto& f, Is<store::ShardFile> auto& m) {
  f("name", m.name), f("size", m.size), f("hash", m.hash);
}
void describe(auto& f, Is<Hello> auto& m) {
  f("process", m.process), f("pid", m.pid), f("host", m.host), f("build", m.build);
}
void describe(auto& f, Is<Ready> auto& m) {
  f("endpoints", m.endpoints), f("admission", m.admission);
}
void describe(auto& f, Is<Progress> auto& m) {
  f("step", m.step), f("micro_batch", m.micro_batch), f("phase", m.phase);
  f("waits_for", m.waits_for), f("waits_on", m.waits_on), f("waited_seconds", m.waited_seconds);
  f("finished_actions", m.finished_actions), f("links", m.links);
}
void describe(auto& f, Is<BoundaryStep> auto& m) {
  f("boundary", m.boundary), f("direction", m.direction), f("raw_bytes", m.raw_bytes);
  f("sent_bytes", m.sent_bytes), f("change", m.change), f("error", m.error);
  f("cache_bytes", m.cache_bytes), f("hits", m.hits), f("first_visits", m.first_visits);
  f("evictions", m.evictions), f("resends", m.resends);
}
void describe(auto& f, Is<SyncStep> auto& m) {
  f("process", m.process), f("rounds", m.rounds), f("sent_bytes", m.sent_bytes);
  f("bfloat16_bytes", m.bfloat16_bytes), f("round_seconds", m.round_seconds);
  f("waited_seconds", m.waited_seconds);
}
void describe(auto& f, Is<StepDone> auto& m) {
  f("step", m.step), f("loss", m.loss), f("grad_norm", m.grad_norm);
  f("learning_rate", m.learning_rate), f("tokens", m.tokens), f("skipped", m.skipped);
  f("seconds", m.seconds), f("busy_seconds", m.busy_seconds);
  f("bytes_forward", m.bytes_forward), f("bytes_backward", m.bytes_backward);
  f("bytes_sync", m.bytes_sync), f("boundaries", m.boundaries), f("sync", m.sync);
}
void describe(auto& f, Is<Evaluated> auto& m) {
  f("step", m.step), f("loss", m.loss), f("tokens", m.tokens);
}
void describe(auto& f, Is<ShardsWritten> auto& m) {
  f("step", m.step), f("files", m.files), f("epoch", m.epoch);
}
void describe(auto& f, Is<ShardFailed> auto& m) {
  f("step", m.step), f("code", m.code), f("text", m.text), f("epoch", m.epoch);
}
void describe(auto& f, Is<Event> auto& m) { f("name", m.name), f("text", m.text); }
void describe(auto& f, Is<LostReplica> auto& m) { f("replica", m.replica), f("text", m.text); }
void describe(auto& f, Is<Failed> auto& m) { f("code", m.code), f("text", m.text); }
void describe(auto& f, Is<Done> auto& m) { f("step", m.step); }
void describe(auto& f, Is<Peers> auto& m) { f("endpoints", m.endpoints); }
void describe(auto& f, Is<Admit> auto& m) {
  f("number", m.number), f("replica", m.replica), f("keys", m.keys), f("binds", m.binds);
}
void describe(auto& f, Is<SaveSoon> auto& m) { f("number", m.number); }
void describe(auto& /*f*/, Is<StopAfterStep> auto& /*m*/) {}
void describe(auto& f, Is<Committed> auto& m) {
  f("step", m.step), f("epoch", m.epoch), f("arrives", m.arrives), f("next_epoch", m.next_epoch);
}
void describe(auto& f, Is<Dropped> auto& m) {
  f("step", m.step), f("text", m.text), f("again", m.again), f("epoch", m.epoch);
}
void describe(auto& f, Is<Regroup> auto& m) { f("epoch", m.epoch), f("replicas", m.replicas); }
void describe(auto& f, Is<Abort> auto& m) {
  f("code", m.code), f("text", m.text), f("origin", m.origin);
}

template <>
constexpr std::string_view kTypeName<Hello> = "hello";
template <>
constexpr std::string_view kTypeName<Ready> = "ready";
template <>
constexpr std::string_view kTypeName<Progress> = "progress";
template <>
constexpr std::string_view kTypeName<StepDone> = "step_done";
template <>
constexpr std::string_view kTypeName<Evaluated> = "evaluated";
template <>
constexpr std::string_view kTypeName<ShardsWritten> = "shards_written";
template <>
constexpr std::string_view kTypeName<ShardFailed> = "shard_failed";
template <>
constexpr std::string_view kTypeName<Event> = "event";
template <>
constexpr std::string_view kTypeName<LostReplica> = "lost_replica";
template <>
constexpr std::string_view kTypeName<Failed> = "failed";
template <>
constexpr std::string_view kTypeName<Done> = "done";
template <>
constexpr std::string_view kTypeName<Peers> = "peers";
template <>
constexpr std::string_view kTypeName<Admit> = "admit";
template <>
constexpr std::string_view kTypeName<SaveSoon> = "save_soon";
template <>
constexpr std::string_view kTypeName<StopAfterStep> = "stop_after_step";
template <>
constexpr std::string_view kTypeName<Committed> = "committed";
template <>
constexpr std::string_view kTypeName<Dropped> = "dropped";
template <>
constexpr std::string_view kTypeName<Regroup> = "regroup";
template <>
constexpr std::string_view kTypeName<Abort> = "abort";

net::Frame format(const StageMessage& message) { return format_message(message); }
net::Frame format(const CoordinatorMessage& message) { return format_message(message); }

StageMessage parse_stage_message(std::span<const std::byte> frame) {
  return parse_message<StageMessage>(frame);
}
CoordinatorMessage parse_coordinator_message(std::span<const std::byte> frame) {
  return parse_message<CoordinatorMessage>(frame);
}

}  // namespace strait::launcher
