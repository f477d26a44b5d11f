#pragma once

#include <algorithm>
#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <limits>
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

// The speed of a path, seen by the sender without extra traffic. Pure: no clock, no lock. It is
// measured in two ways, and the faster result counts:
// - The bytes that the peer confirmed, over the time in which bytes were in flight. This includes
//   the round trip, so it is never too much. The best of the last periods counts.
// - For fragments sent back to back (a run): the time from the first arrival to the last one, by
//   the peer's clock. Neither the round trip nor late confirmations matter. A busy host may falsify
//   single results in both directions, so the median of the last ones counts.
class RateMeter {
 public:
  using Time = std::chrono::steady_clock::time_point;
  using Nanoseconds = std::chrono::nanoseconds;

  // A fragment was sent; the stream is sent up to `position`. `more`: another fragment follows at
  // once. Positions count bytes of frames.
  void fragment_sent(Time now, std::uint64_t position, bool more);
  // Called after every change. `pushed`: the position up to which there is something to send.
  // `confirmed`: up to which the peer has it. `arrived`: when the last of that arrived, by the
  // peer's clock.
  void update(Time now, std::uint64_t pushed, std::uint64_t confirmed, Nanoseconds arrived);

  double bytes_per_second() const;                        // 0: not measured yet
  double back_to_back_rate() const { return run_rate_; }  // the second way alone

 private:
  struct Run {                // fragments sent back to back
    std::uint64_t first = 0;  // the end of the first fragment
    Time sent_at;             // when the first fragment was sent
    std::uint64_t last = 0;
    bool whole = false;
    bool begun = false;     // the first fragment is confirmed; what follows is of that moment
    bool compared = false;  // nearest_ was known from earlier runs
    Nanoseconds arrived{0};
    std::uint64_t confirmed = 0;
  };
  using Rates = std::array<double, 16>;

  void update_period(Time now, std::uint64_t pushed, std::uint64_t confirmed, Nanoseconds arrived);
  void update_runs(Time now, std::uint64_t confirmed, Nanoseconds arrived);
  void measure(const Run& run, std::uint64_t confirmed, Nanoseconds arrived);

  // Shorter periods are noise. Longer ones are cut, so that a path that is never idle is measured.
  static constexpr std::uint64_t kLeastBytes = 4096;
  static constexpr std::uint64_t kLeastBytesOfShortRun = std::uint64_t{64} << 10;
  static constexpr std::chrono::milliseconds kLeast{5};
  static constexpr std::chrono::milliseconds kLongest{250};

  bool open_ = false;
  Time began_{};
  std::uint64_t base_ = 0;       // confirmed when the period began
  Nanoseconds base_arrived_{0};  // when the last of these bytes arrived
  bool follows_ = false;         // bytes were in flight when the period began
  Rates periods_{};
  std::size_t next_period_ = 0;

  std::deque<Run> runs_;
  Rates run_rates_{};
  std::size_t next_run_rate_ = 0;
  double run_rate_ = 0;
  SlidingMinimum nearest_;  // one way, from our clock to the peer's
};

// How large a fragment may be, so that a path of any speed carries it well before it counts as
// silent. Pure: no clock, no lock.
//
// A measured rate is the best one of some time, and a path may slow down suddenly. While bytes are
// in flight without a pause, the path is assumed to be at most a few times as fast as its recent
// confirmations.
class FragmentSize {
 public:
  using Time = std::chrono::steady_clock::time_point;

  // The size on an unknown path, and the least size ever: 3.3 s at 10 kbit/s.
  static constexpr std::uint64_t kLeast = 4096;

  // `sent`: the position in the stream up to which everything is sent. `confirmed`: up to which the
  // peer has it.
  void update(Time now, std::uint64_t sent, std::uint64_t confirmed);

  // `rate`: measured, in bytes per second; 0: not measured yet.
  std::uint64_t limit(double rate) const;
  // The largest part of a frame of this size. Without this bound a path that was once fast would
  // get whole frames, whose confirmations never show that it has become slow.
  static std::uint64_t part_of(std::uint64_t frame_bytes);

 private:
  bool busy_ = false;
  Time began_{};
  std::uint64_t base_ = 0;                                 // confirmed when the interval began
  double most_ = std::numeric_limits<double>::infinity();  // bytes per second
};

}  // namespace strait::net
