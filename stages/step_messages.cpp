#include "stages/step_messages.h"

#include <fmt/format.h>

#include <algorithm>

#include "framework/bytes.h"
#include "framework/codec/message.h"

namespace strait::stages {
namespace {

// More than the parameters of any model: bounds the allocation in read_report().
constexpr std::size_t kMaxNorms = 1 << 20;
constexpr std::size_t kNormBytes = sizeof(std::uint32_t) + sizeof(double);
// Values on the wire.
enum class Note : std::uint8_t { report = 1, decision = 2 };

net::Frame note_of(Note note) {
  net::Frame frame;
  append_value(frame, codec::Kind::note);
  append_value(frame, note);
  return frame;
}

void append_flag(net::Frame& frame, bool flag) {
  append_value(frame, static_cast<std::uint8_t>(flag ? 1 : 0));
}

ByteReader reader_of(std::span<const std::byte> frame, Note expected) {
  ByteReader reader(frame);
  const auto kind = reader.value<codec::Kind>();
  const auto note = reader.value<Note>();
  if (kind != codec::Kind::note || note != expected) {
    throw codec::CodecError(
        "invalid boundary note: not the kind that this point of a step expects");
  }
  return reader;
}

void check_length(const ByteReader& reader) {
  if (reader.failed()) throw codec::CodecError("invalid boundary note: it is too short");
}

}  // namespace

void add_norms(StepReport& report, const std::vector<SquaredNorm>& norms) {
  report.squared_norms.insert(report.squared_norms.end(), norms.begin(), norms.end());
  // The order of parameters, whatever the order in which stages reported.
  std::ranges::sort(report.squared_norms, {}, &SquaredNorm::parameter);
}

net::Frame to_frame(const StepReport& report) {
  net::Frame frame = note_of(Note::report);
  append_value(frame, number(report.step));
  append_value(frame, report.loss);
  append_value(frame, report.target_tokens);
  append_value(frame, report.tokens);
  append_flag(frame, report.round_incomplete);
  append_value(frame, static_cast<std::uint32_t>(report.squared_norms.size()));
  // Field by field, because the struct has padding.
  for (const SquaredNorm& norm : report.squared_norms) {
    append_value(frame, norm.parameter);
    append_value(frame, norm.value);
  }
  return frame;
}

net::Frame to_frame(const StepDecision& decision) {
  net::Frame frame = note_of(Note::decision);
  append_value(frame, number(decision.step));
  append_value(frame, decision.loss);
  append_value(frame, decision.target_tokens);
  append_value(frame, decision.tokens);
  append_value(frame, decision.gradient_norm);
  append_value(frame, decision.gradient_factor);
  append_flag(frame, decision.skip);
  append_flag(frame, decision.stop);
  append_flag(frame, decision.save);
  append_value(frame, decision.epoch);
  append_flag(frame, decision.retry);
  return frame;
}

StepReport read_report(std::span<const std::byte> frame) {
  ByteReader reader = reader_of(frame, Note::report);
  StepReport report;
  report.step = static_cast<store::Step>(reader.value<std::int64_t>());
  report.loss = reader.value<double>();
  report.target_tokens = reader.value<std::int64_t>();
  report.tokens = reader.value<std::int64_t>();
  report.round_incomplete = reader.value<std::uint8_t>() != 0;
  const std::size_t norms = reader.value<std::uint32_t>();
  check_length(reader);
  // Checked before memory is reserved, because the count comes from a peer.
  const std::size_t left = reader.rest().size();
  if (norms > kMaxNorms || norms * kNormBytes != left) {
    throw codec::CodecError(fmt::format("invalid step report: {} norms in {} bytes", norms, left));
  }
  report.squared_norms.reserve(norms);
  for (std::size_t i = 0; i < norms; ++i) {
    const auto parameter = reader.value<std::uint32_t>();
    report.squared_norms.push_back({parameter, reader.value<double>()});
  }
  return report;
}

StepDecision read_decision(std::span<const std::byte> frame) {
  ByteReader reader = reader_of(frame, Note::decision);
  StepDecision decision;
  decision.step = static_cast<store::Step>(reader.value<std::int64_t>());
  decision.loss = reader.value<double>();
  decision.target_tokens = reader.value<std::int64_t>();
  decision.tokens = reader.value<std::int64_t>();
  decision.gradient_norm = reader.value<double>();
  decision.gradient_factor = reader.value<double>();
  decision.skip = reader.value<std::uint8_t>() != 0;
  decision.stop = reader.value<std::uint8_t>() != 0;
  decision.save = reader.value<std::uint8_t>() != 0;
  decision.epoch = reader.value<std::uint32_t>();
  decision.retry = reader.value<std::uint8_t>() != 0;
  check_length(reader);
  if (!reader.complete()) {
    throw codec::CodecError(fmt::format("invalid step decision: {} bytes follow it, expected none",
                                        reader.rest().size()));
  }
  return decision;
}

}  // namespace strait::stages
