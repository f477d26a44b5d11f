#include "stages/boundary_spans.h"

namespace strait::stages {
namespace {

// Numbers of messages must be below 2^53, so that JSON keeps them: 28 bits for boundary and
// direction, and more messages than the trace of any process holds.
constexpr unsigned kCountBits = 24;

std::uint64_t first_number(std::uint64_t boundary, bool activations) {
  return ((boundary * 2 + (activations ? 1 : 0)) << kCountBits) + 1;
}

trace::Span message_span(const BoundarySpans::Message& message, const char* category, int row,
                         trace::Nanoseconds start, trace::Nanoseconds end) {
  trace::Span span{message.name, category, row, start, end};
  span.argument = message.micro_batch < 0 ? nullptr : "micro_batch";
  span.value = message.micro_batch;
  span.bytes = message.bytes;
  return span;
}

}  // namespace

BoundarySpans::BoundarySpans(trace::SpanLog& log, const End& end)
    : log_(&log),
      next_sent_(first_number(end.number, end.sends_activations)),
      next_received_(first_number(end.number, !end.sends_activations)) {
  const char* mine = end.sends_activations ? "activations" : "gradients";
  const char* theirs = end.sends_activations ? "gradients" : "activations";
  encode_ = log.add_row("encode " + end.boundary + " " + mine);
  send_ = log.add_row("send " + end.boundary + " " + mine);
  receive_ = log.add_row("receive " + end.boundary + " " + theirs);
  decode_ = log.add_row("decode " + end.boundary + " " + theirs);
}

void BoundarySpans::sent(const Message& message, trace::Nanoseconds encodes,
                         trace::Nanoseconds sends, trace::Nanoseconds taken) {
  if (log_ == nullptr) return;
  log_->record(message_span(message, "encode", encode_, encodes, sends));
  trace::Span sending = message_span(message, "send", send_, sends, taken);
  sending.message = next_sent_++;
  log_->record(sending);
}

void BoundarySpans::received(const Message& message, trace::Nanoseconds waits,
                             trace::Nanoseconds arrived, trace::Nanoseconds decoded) {
  if (log_ == nullptr) return;
  trace::Span receiving = message_span(message, "receive", receive_, waits, arrived);
  receiving.message = next_received_++;
  receiving.arrives = true;
  log_->record(receiving);
  log_->record(message_span(message, "decode", decode_, arrived, decoded));
}

}  // namespace strait::stages
