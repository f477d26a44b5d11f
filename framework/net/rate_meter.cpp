#include "framework/net/rate_meter.h"

#include <functional>

#include "framework/net/wire_format.h"

namespace strait::net {
namespace {

using Seconds = std::chrono::duration<double>;

template <typename Rates>
void note(Rates& rates, std::size_t& next, std::uint64_t bytes, Seconds passed) {
  rates[next] = static_cast<double>(bytes) / passed.count();
  next = (next + 1) % rates.size();
}

// The median of the known rates. At least one is known.
template <typename Rates>
double middle(Rates rates) {
  std::sort(rates.begin(), rates.end(), std::greater<>());
  const auto known = std::find(rates.begin(), rates.end(), 0.0) - rates.begin();
  return rates[static_cast<std::size_t>(known) / 2];
}

// Each fragment takes the path about this long. A frame is sent in several fragments, so that the
// times of their confirmations show the path's speed.
constexpr Seconds kFragment{0.01};
// Smaller fragments cost more than their confirmations are worth, unless they take kLongest.
constexpr std::uint64_t kUsualLeast = std::uint64_t{32} << 10;
// Well below kSilence: nothing else arrives while a fragment crosses a slow path.
constexpr Seconds kLongest{0.25};
// Fewer parts would not show a path that has become slow while the frame is sent.
constexpr std::uint64_t kParts = 3;
constexpr std::uint64_t kLeastPart = kUsualLeast / 2;

// Longer than a round trip, since within one round trip nothing is confirmed on a fast path either.
constexpr Seconds kInterval{0.5};
// A path that another link used for a moment is not slow, so the bound is loose.
constexpr double kFaster = 4;

}  // namespace

void RateMeter::fragment_sent(Time now, std::uint64_t position, bool more) {
  if (runs_.empty() || runs_.back().whole) {
    Run& run = runs_.emplace_back();
    run.first = position;
    run.sent_at = now;
  }
  runs_.back().last = position;
  runs_.back().whole = !more;
}

void RateMeter::update(Time now, std::uint64_t pushed, std::uint64_t confirmed,
                       Nanoseconds arrived) {
  update_period(now, pushed, confirmed, arrived);
  update_runs(now, confirmed, arrived);
}

void RateMeter::update_period(Time now, std::uint64_t pushed, std::uint64_t confirmed,
                              Nanoseconds arrived) {
  if (open_ && confirmed > base_ && now > began_) {
    const bool idle = confirmed == pushed;
    const bool longest = now - began_ >= kLongest;
    if (idle || longest) {
      const std::uint64_t bytes = confirmed - base_;
      // Bytes that were in flight when a period began had already travelled before it. The short
      // rest of a period that was cut would give too high a rate.
      const bool counts = longest || !follows_;
      // Confirmations that waited in the peer's queues come several at once, long after the arrival
      // that they confirm. So the longer of the two times counts.
      const Seconds passed = follows_ ? std::max<Seconds>(now - began_, arrived - base_arrived_)
                                      : Seconds(now - began_);
      if (bytes >= kLeastBytes && counts) note(periods_, next_period_, bytes, passed);
      open_ = false;
      follows_ = !idle;
    }
  }
  if (!open_ && pushed > confirmed) {
    open_ = true;
    began_ = now;
    base_ = confirmed;
    base_arrived_ = arrived;
  }
}

void RateMeter::update_runs(Time now, std::uint64_t confirmed, Nanoseconds arrived) {
  while (!runs_.empty() && confirmed >= runs_.front().first) {
    Run& run = runs_.front();
    if (!run.begun) {
      run.begun = true;
      run.compared = nearest_.value() < Seconds::max();
      run.arrived = arrived;
      run.confirmed = confirmed;
      nearest_.add(now, arrived - run.sent_at.time_since_epoch());
    }
    const bool over = run.whole && confirmed >= run.last;
    if (!over && arrived - run.arrived < kLongest) return;
    measure(run, confirmed, arrived);
    if (!over) {
      run.begun = false;
      return;
    }
    runs_.pop_front();
  }
}

void RateMeter::measure(const Run& run, std::uint64_t confirmed, Nanoseconds arrived) {
  const std::uint64_t bytes = std::min(confirmed, run.last) - std::min(run.confirmed, run.last);
  const Seconds passed = arrived - run.arrived;
  // A run this short is noise. But if many bytes arrived in it, the path is at least that fast,
  // unless the bytes were only held up and arrived all at once. So the time counts from sending.
  const Seconds since_sent = arrived - run.sent_at.time_since_epoch() - nearest_.value();
  const Seconds counts = passed >= kLeast ? passed : std::max<Seconds>(since_sent, kLeast);
  const bool fast = run.compared && bytes >= kLeastBytesOfShortRun &&
                    static_cast<double>(bytes) > run_rate_ * counts.count();
  if (bytes < kLeastBytes || (passed < kLeast && !fast)) return;
  note(run_rates_, next_run_rate_, bytes, counts);
  run_rate_ = middle(run_rates_);
}

double RateMeter::bytes_per_second() const {
  // Both ways measure too little when they fail, so the faster one is right.
  return std::max(*std::max_element(periods_.begin(), periods_.end()), run_rate_);
}

void FragmentSize::update(Time now, std::uint64_t sent, std::uint64_t confirmed) {
  if (confirmed >= sent) {
    busy_ = false;
    most_ = std::numeric_limits<double>::infinity();
  } else if (!busy_) {
    busy_ = true;
    began_ = now;
    base_ = confirmed;
  } else if (const Seconds passed = now - began_; passed >= kInterval) {
    most_ = kFaster * static_cast<double>(confirmed - std::min(base_, confirmed)) / passed.count();
    began_ = now;
    base_ = confirmed;
  }
}

std::uint64_t FragmentSize::limit(double rate) const {
  const double bytes_per_second = std::min(rate, most_);
  const auto in = [bytes_per_second](Seconds time) {
    const double bytes = bytes_per_second * time.count();
    return static_cast<std::uint64_t>(std::min(bytes, static_cast<double>(kMaxFragmentBytes)));
  };
  return std::max(in(kFragment), std::clamp(in(kLongest), kLeast, kUsualLeast));
}

std::uint64_t FragmentSize::part_of(std::uint64_t frame_bytes) {
  return std::max(frame_bytes / kParts + 1, kLeastPart);
}

}  // namespace strait::net
