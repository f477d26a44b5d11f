#include "framework/net/rate_meter.h"

#include <algorithm>
#include <functional>

namespace strait::net {
namespace {

using Seconds = std::chrono::duration<double>;

template <typename Rates>
void note(Rates& rates, std::size_t& next, std::uint64_t bytes, Seconds passed) {
  rates[next] = static_cast<double>(bytes) / passed.count();
  next = (next + 1) % rates.size();
}

// Of those that are known, and one is.
template <typename Rates>
double middle(Rates rates) {
  std::sort(rates.begin(), rates.end(), std::greater<>());
  const auto known = std::find(rates.begin(), rates.end(), 0.0) - rates.begin();
  return rates[static_cast<std::size_t>(known) / 2];
}

}  // namespace

void RateMeter::chunk_sent(std::uint64_t place, bool more) {
  if (runs_.empty() || runs_.back().whole) {
    Run& run = runs_.emplace_back();
    run.first = place;
  }
  runs_.back().last = place;
  runs_.back().whole = !more;
}

void RateMeter::update(Time now, std::uint64_t pushed, std::uint64_t confirmed) {
  update_period(now, pushed, confirmed);
  update_runs(now, confirmed);
}

void RateMeter::update_period(Time now, std::uint64_t pushed, std::uint64_t confirmed) {
  if (open_ && confirmed > base_ && now > began_) {
    const bool idle = confirmed == pushed;
    if (idle || now - began_ >= kLongest) {
      const std::uint64_t bytes = confirmed - base_;
      if (bytes >= kLeastBytes) note(periods_, next_period_, bytes, now - began_);
      open_ = false;
    }
  }
  if (!open_ && pushed > confirmed) {
    open_ = true;
    began_ = now;
    base_ = confirmed;
  }
}

void RateMeter::update_runs(Time now, std::uint64_t confirmed) {
  while (!runs_.empty() && confirmed >= runs_.front().first) {
    Run& run = runs_.front();
    if (!run.begun) {
      run.begun = true;
      run.at = now;
      run.confirmed = confirmed;
    }
    const bool over = run.whole && confirmed >= run.last;
    const auto passed = now - run.at;
    if (!over && passed < kLongest) return;
    const std::uint64_t bytes = std::min(confirmed, run.last) - std::min(run.confirmed, run.last);
    // So short a time is noise; but if much went in it, the path is as wide as that at least.
    const Seconds counts = std::max<Seconds>(passed, kLeast);
    const bool much = bytes >= kMuch && static_cast<double>(bytes) > behind_rate_ * counts.count();
    if (bytes >= kLeastBytes && (passed >= kLeast || much)) {
      note(behind_, next_behind_, bytes, counts);
      behind_rate_ = middle(behind_);
    }
    if (!over) {
      run.begun = false;
      return;
    }
    runs_.pop_front();
  }
}

double RateMeter::bytes_per_second() const {
  return std::max(*std::max_element(periods_.begin(), periods_.end()), behind_rate_);
}

}  // namespace strait::net
