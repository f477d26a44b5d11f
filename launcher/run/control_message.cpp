#include "launcher/run/control_message.h"

#include "launcher/base/messages.h"

namespace strait::fields {

// In this namespace, so that argument-dependent lookup finds them with the writers of fields.
void describe(auto& f, Is<trace::BoundaryMetrics> auto& m) {
  trace::describe_metrics<trace::BoundaryMetrics>(f, m);
}
void describe(auto& f, Is<trace::SyncMetrics> auto& m) {
  trace::describe_metrics<trace::SyncMetrics>(f, m);
}

}  // namespace strait::fields

namespace strait::run {

// The one list of fields of each message, used by the writer and by the reader.
void describe(auto& f, fields::Is<LinkTraffic> auto& m) {
  f("name", m.name), f("peer", m.peer), f("sent_bytes", m.sent_bytes);
  f("received_bytes", m.received_bytes), f("bytes_per_second", m.bytes_per_second);
}
void describe(auto& f, fields::Is<Hello> auto& m) {
  f("process", m.process), f("pid", m.pid), f("host", m.host), f("build", m.build);
}
void describe(auto& f, fields::Is<Ready> auto& m) {
  f("endpoints", m.endpoints), f("admission", m.admission);
}
void describe(auto& f, fields::Is<Progress> auto& m) {
  f("step", m.step), f("micro_batch", m.micro_batch), f("phase", m.phase);
  f("waits_for", m.waits_for), f("waits_on", m.waits_on), f("path_is_down", m.path_is_down),
      f("waited_seconds", m.waited_seconds);
  f("finished_actions", m.finished_actions), f("links", m.links);
}
void describe(auto& f, fields::Is<StepDone> auto& m) {
  f("step", m.step), f("boundaries", m.boundaries), f("sync", m.sync), f("links", m.links);
  trace::describe_metrics<trace::StepMetrics>(f, m);
}
void describe(auto& f, fields::Is<Evaluated> auto& m) {
  f("step", m.step), f("loss", m.loss), f("tokens", m.tokens);
  f("margin", m.margin), f("accuracy", m.accuracy);
}
void describe(auto& f, fields::Is<ShardsWritten> auto& m) {
  f("step", m.step), f("files", m.files), f("epoch", m.epoch), f("in_memory", m.in_memory);
  f("failed", m.failed), f("problem", m.problem), f("code", m.code);
}
void describe(auto& f, fields::Is<CheckpointDecided> auto& m) {
  f("step", m.step), f("epoch", m.epoch), f("dropped", m.dropped), f("again", m.again);
  f("in_memory", m.in_memory), f("arrives", m.arrives), f("next_epoch", m.next_epoch);
}
void describe(auto& f, fields::Is<Event> auto& m) { f("name", m.name), f("text", m.text); }
void describe(auto& f, fields::Is<LostReplica> auto& m) {
  f("replica", m.replica), f("text", m.text);
}
void describe(auto& f, fields::Is<Ended> auto& m) {
  f("code", m.code), f("text", m.text), f("orphaned", m.orphaned);
}
void describe(auto& f, fields::Is<Peers> auto& m) { f("endpoints", m.endpoints); }
void describe(auto& f, fields::Is<Admit> auto& m) {
  f("number", m.number), f("replica", m.replica), f("keys", m.keys), f("binds", m.binds);
}
void describe(auto& f, fields::Is<AfterStep> auto& m) { f("stop", m.stop), f("save", m.save); }
void describe(auto& f, fields::Is<Regroup> auto& m) {
  f("epoch", m.epoch), f("replicas", m.replicas);
}
void describe(auto& f, fields::Is<Abort> auto& m) {
  f("code", m.code), f("text", m.text), f("origin", m.origin);
}
void describe(auto& f, fields::Is<Sampling> auto& m) {
  f("repetition_penalty", m.repetition_penalty), f("temperature", m.temperature);
  f("top_k", m.top_k), f("top_p", m.top_p), f("min_p", m.min_p), f("seed", m.seed);
}
void describe(auto& f, fields::Is<ExtendSequence> auto& m) {
  f("sequence", m.sequence), f("number", m.number), f("tokens", m.tokens);
  f("capacity", m.capacity), f("cache_bits", m.cache_bits), f("sampling", m.sampling);
  f("choose", m.choose), f("score", m.score);
}
void describe(auto& f, fields::Is<ExtendBatch> auto& m) {
  f("number", m.number), f("ended", m.ended), f("sequences", m.sequences);
}
void describe(auto& f, fields::Is<ScoreRows> auto& m) {
  f("number", m.number), f("padded_length", m.padded_length), f("tokens", m.tokens);
  f("documents_of_rows", m.documents_of_rows), f("document_lengths", m.document_lengths);
  f("target_spans", m.target_spans);
}
void describe(auto& f, fields::Is<TokenScore> auto& m) {
  f("logarithm", m.logarithm), f("likeliest", m.likeliest);
  f("likeliest_logarithm", m.likeliest_logarithm);
}
void describe(auto& f, fields::Is<ChosenToken> auto& m) {
  f("sequence", m.sequence), f("token", m.token), f("scores", m.scores);
}
void describe(auto& f, fields::Is<InferenceAnswer> auto& m) {
  f("number", m.number), f("tokens", m.tokens), f("loss_sum", m.loss_sum);
}

// In the order of the variants.
constexpr auto kStageTypes =
    std::to_array<std::string_view>({"hello", "ready", "progress", "step_done", "evaluated",
                                     "shards_written", "event", "lost_replica", "ended", "answer"});
constexpr auto kCoordinatorTypes =
    std::to_array<std::string_view>({"peers", "admit", "after_step", "checkpoint_decided",
                                     "regroup", "abort", "extend_batch", "score_rows"});

net::Frame format(const StageMessage& message) {
  return base::format_message(message, kStageTypes);
}
net::Frame format(const CoordinatorMessage& message) {
  return base::format_message(message, kCoordinatorTypes);
}

StageMessage parse_stage_message(std::span<const std::byte> frame) {
  return base::parse_message<StageMessage>(frame, kStageTypes);
}
CoordinatorMessage parse_coordinator_message(std::span<const std::byte> frame) {
  return base::parse_message<CoordinatorMessage>(frame, kCoordinatorTypes);
}

}  // namespace strait::run
