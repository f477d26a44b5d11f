#include "stages/step_messages.h"

#include <algorithm>

#include "framework/codec/message.h"
#include "framework/fields/byte_fields.h"

namespace strait::stages {

void describe(auto& f, fields::Is<StepDecision> auto& m) {
  f("step", m.step), f("loss", m.loss), f("target_tokens", m.target_tokens);
  f("margin", m.margin), f("accuracy", m.accuracy);
  f("tokens", m.tokens), f("gradient_norm", m.gradient_norm);
  f("gradient_factor", m.gradient_factor), f("skip", m.skip), f("hold", m.hold);
  f("own", m.own), f("stop", m.stop), f("save", m.save), f("epoch", m.epoch);
  f("retry", m.retry);
}

namespace {

// Values on the wire.
enum class Note : std::uint8_t { report = 1, decision = 2 };

template <class T>
net::Frame note_of(Note note, const T& value) {
  net::Frame frame;
  fields::BytesWriter writer(frame);
  writer("kind", codec::Kind::note), writer("note", note), describe(writer, value);
  return frame;
}

template <class T>
T read_note(std::span<const std::byte> frame, Note expected, const std::string& name) {
  fields::BytesReader reader(frame, name);
  codec::Kind kind{};
  Note note{};
  reader("kind", kind), reader("note", note);
  if (kind != codec::Kind::note || note != expected) {
    throw fields::MessageError(name + " expected, but another message came");
  }
  T value;
  describe(reader, value);
  reader.finish();
  return value;
}

}  // namespace

void add_norms(StepReport& report, const std::vector<SquaredNorm>& norms) {
  report.squared_norms.insert(report.squared_norms.end(), norms.begin(), norms.end());
  // The order of parameters, whatever the order in which stages reported.
  std::ranges::sort(report.squared_norms, {}, &SquaredNorm::parameter);
}

net::Frame to_frame(const StepReport& report) { return note_of(Note::report, report); }
net::Frame to_frame(const StepDecision& decision) { return note_of(Note::decision, decision); }

StepReport read_report(std::span<const std::byte> frame) {
  return read_note<StepReport>(frame, Note::report, "the report on a step");
}
StepDecision read_decision(std::span<const std::byte> frame) {
  return read_note<StepDecision>(frame, Note::decision, "the decision on a step");
}

}  // namespace strait::stages
