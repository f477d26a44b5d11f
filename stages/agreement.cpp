#include "stages/agreement.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <type_traits>

#include "framework/codec/codec_error.h"
#include "framework/codec/message.h"

namespace strait::stages {
namespace {

constexpr std::size_t kMaxNorms = 1 << 20;
constexpr std::size_t kNormBytes = sizeof(std::uint32_t) + sizeof(double);
enum class Note : std::uint8_t { report = 1, verdict = 2 };

template <typename Value>
void put(net::Frame& frame, Value value) {
  static_assert(std::is_trivially_copyable_v<Value>);
  const std::size_t at = frame.size();
  frame.resize(at + sizeof(Value));
  std::memcpy(frame.data() + at, &value, sizeof(Value));
}

net::Frame note_of(Note note) {
  net::Frame frame;
  put(frame, codec::Kind::note);
  put(frame, note);
  return frame;
}

class NoteCursor {
 public:
  NoteCursor(std::span<const std::byte> frame, Note expected) : rest_(frame) {
    if (get<codec::Kind>() != codec::Kind::note || get<Note>() != expected) {
      throw codec::CodecError("a boundary note is not the one that this point of a step expects");
    }
  }

  template <typename Value>
  Value get() {
    if (rest_.size() < sizeof(Value)) throw codec::CodecError("a boundary note is cut short");
    Value value;
    std::memcpy(&value, rest_.data(), sizeof(Value));
    rest_ = rest_.subspan(sizeof(Value));
    return value;
  }

  std::size_t left() const { return rest_.size(); }

 private:
  std::span<const std::byte> rest_;
};

}  // namespace

void add_norms(StepReport& report, const std::vector<SquaredNorm>& norms) {
  report.squared_norms.insert(report.squared_norms.end(), norms.begin(), norms.end());
  std::ranges::sort(report.squared_norms, {}, &SquaredNorm::parameter);
}

StepVerdict decide(const StepReport& report, double clip, bool stop) {
  double sum = 0;
  for (const SquaredNorm& norm : report.squared_norms) sum += norm.value;
  StepVerdict verdict;
  verdict.step = report.step;
  verdict.loss = report.loss;
  verdict.target_tokens = report.target_tokens;
  verdict.tokens = report.tokens;
  verdict.gradient_norm = std::sqrt(sum);
  verdict.skip = !std::isfinite(sum) || !std::isfinite(report.loss);
  verdict.stop = stop;
  if (clip > 0 && !verdict.skip) {
    verdict.gradient_factor = std::min(1.0, clip / (verdict.gradient_norm + 1e-6));
  }
  return verdict;
}

net::Frame to_frame(const StepReport& report) {
  net::Frame frame = note_of(Note::report);
  put(frame, number(report.step));
  put(frame, report.loss);
  put(frame, report.target_tokens);
  put(frame, report.tokens);
  put(frame, static_cast<std::uint8_t>(report.parted ? 1 : 0));
  put(frame, static_cast<std::uint32_t>(report.squared_norms.size()));
  for (const SquaredNorm& norm : report.squared_norms) {
    put(frame, norm.parameter);
    put(frame, norm.value);
  }
  return frame;
}

net::Frame to_frame(const StepVerdict& verdict) {
  net::Frame frame = note_of(Note::verdict);
  put(frame, number(verdict.step));
  put(frame, verdict.loss);
  put(frame, verdict.target_tokens);
  put(frame, verdict.tokens);
  put(frame, verdict.gradient_norm);
  put(frame, verdict.gradient_factor);
  put(frame, static_cast<std::uint8_t>(verdict.skip ? 1 : 0));
  put(frame, static_cast<std::uint8_t>(verdict.stop ? 1 : 0));
  put(frame, static_cast<std::uint8_t>(verdict.save ? 1 : 0));
  put(frame, verdict.epoch);
  put(frame, static_cast<std::uint8_t>(verdict.again ? 1 : 0));
  return frame;
}

StepReport read_report(std::span<const std::byte> frame) {
  NoteCursor cursor(frame, Note::report);
  StepReport report;
  report.step = static_cast<store::Step>(cursor.get<std::int64_t>());
  report.loss = cursor.get<double>();
  report.target_tokens = cursor.get<std::int64_t>();
  report.tokens = cursor.get<std::int64_t>();
  report.parted = cursor.get<std::uint8_t>() != 0;
  const auto norms = cursor.get<std::uint32_t>();
  if (norms > kMaxNorms || norms * kNormBytes != cursor.left()) {
    throw codec::CodecError(
        fmt::format("a step report claims {} norms in {} bytes", norms, cursor.left()));
  }
  report.squared_norms.reserve(norms);
  for (std::uint32_t i = 0; i < norms; ++i) {
    const auto parameter = cursor.get<std::uint32_t>();
    report.squared_norms.push_back({parameter, cursor.get<double>()});
  }
  return report;
}

StepVerdict read_verdict(std::span<const std::byte> frame) {
  NoteCursor cursor(frame, Note::verdict);
  StepVerdict verdict;
  verdict.step = static_cast<store::Step>(cursor.get<std::int64_t>());
  verdict.loss = cursor.get<double>();
  verdict.target_tokens = cursor.get<std::int64_t>();
  verdict.tokens = cursor.get<std::int64_t>();
  verdict.gradient_norm = cursor.get<double>();
  verdict.gradient_factor = cursor.get<double>();
  verdict.skip = cursor.get<std::uint8_t>() != 0;
  verdict.stop = cursor.get<std::uint8_t>() != 0;
  verdict.save = cursor.get<std::uint8_t>() != 0;
  verdict.epoch = cursor.get<std::uint32_t>();
  verdict.again = cursor.get<std::uint8_t>() != 0;
  return verdict;
}

}  // namespace strait::stages
