#include "stages/codec_chooser.h"

#include <algorithm>
#include <cmath>
#include <utility>

namespace strait::stages {

CodecChooser::CodecChooser(const codec::ChoiceLimits& limits, const net::Link& link,
                           const WaitClock& waits)
    : limits_(limits), link_(link), waits_(waits), now_(codec::first_choice(limits)) {}

codec::Choice CodecChooser::now() const {
  const MutexLock lock(mutex_);
  return now_;
}

std::vector<CodecChooser::Made> CodecChooser::take_decisions() {
  const MutexLock lock(mutex_);
  return std::exchange(decisions_, {});
}

codec::Measured CodecChooser::measure(const Sample& before, const Sample& after) const {
  // Averages per step between the two samples.
  const auto steps = static_cast<double>(number(after.step) - number(before.step));
  codec::Measured measured;
  measured.bytes_per_second = link_.state().bytes_per_second;
  measured.compute_seconds = (after.busy - before.busy) / steps;
  const codec::Traffic sent = after.traffic.since(before.traffic);
  // raw_bytes counts four bytes a value.
  measured.values_per_step = static_cast<double>(sent.raw_bytes) / 4 / steps;
  measured.messages_per_step = std::max(1.0, static_cast<double>(sent.messages) / steps);
  if (sent.changed_value_squares > 0) {
    measured.change = std::sqrt(sent.change_squares / sent.changed_value_squares);
  }
  if (sent.noise_squares > 0) {
    codec::GradientMeasure gradient;
    gradient.noise = sent.noise_squares / steps;
    gradient.signal = sent.signal_squares / steps;
    gradient.values = sent.gradient_squares / steps;
    if (sent.value_squares > 0) {
      gradient.error = std::sqrt(sent.error_squares / sent.value_squares);
    }
    if (sent.compared_squares > 0) gradient.bias = 1 - sent.kept_squares / sent.compared_squares;
    measured.gradient = gradient;
  }
  return measured;
}

codec::Choice CodecChooser::choose(store::Step step, const codec::Traffic& traffic) {
  const Sample sample{waits_.read().busy, step, traffic};
  if (!last_) {
    last_ = sample;
    return now();
  }
  if (number(step) - number(last_->step) < kSampleEvery) return now();
  const codec::Measured measured = measure(*std::exchange(last_, sample), sample);
  // The lock is for readers of now_ and decisions_; last_ belongs to this thread.
  const MutexLock lock(mutex_);
  std::optional<codec::Decision> decision = codec::next_choice(limits_, now_, measured);
  // The first decision is reported even if it changes nothing, so that a user sees what `auto`
  // does.
  if (decision && (!std::exchange(decided_, true) || decision->choice != now_)) {
    now_ = decision->choice;
    decisions_.push_back({step, *std::move(decision)});
  }
  return now_;
}

}  // namespace strait::stages
