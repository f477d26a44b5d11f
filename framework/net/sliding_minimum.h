#pragma once

#include <algorithm>
#include <chrono>
#include <utility>

namespace strait::net {

// The least duration of the last five to ten seconds. For a round trip or a one-way delay between
// two clocks it is the path's delay without a queue. Older values do not count, because routes
// change and clocks drift. Pure: no clock.
class SlidingMinimum {
 public:
  using Time = std::chrono::steady_clock::time_point;
  using Seconds = std::chrono::duration<double>;

  static constexpr std::chrono::seconds kHolds{5};

  void add(Time now, Seconds value) {
    if (now - since_ >= kHolds) {
      before_ = std::exchange(latest_, Seconds::max());
      since_ = now;
    }
    latest_ = std::min(latest_, value);
  }
  Seconds value() const { return std::min(latest_, before_); }  // Seconds::max(): none yet

 private:
  Seconds latest_ = Seconds::max();
  Seconds before_ = Seconds::max();
  Time since_{};
};

}  // namespace strait::net
