#pragma once

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>

#include "framework/net/sliding_minimum.h"

namespace strait::net {

// How fast a path carries bytes, seen from the sending side without sending anything for it. Pure:
// no clock, no lock. Two ways, and the faster one counts:
//
// - Bytes that the peer confirmed over the time in which something was in flight. The round trip is
//   part of that time, so this is never too much, and the best of the last periods counts.
// - Of chunks that were sent back to back, the time from the first one's arrival to the last one's,
//   by the peer's clock: neither the round trip nor late confirmations are part of it. Single ones
//   may be too much or too little, when a host was busy; the middle one of the last counts.
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
  struct Run {                // of chunks
    std::uint64_t first = 0;  // ends the first one
    Time sent_at;             // the first one
    std::uint64_t last = 0;
    bool whole = false;
    bool begun = false;     // the first one is confirmed, and then this held:
    bool compared = false;  // nearest_ was known from others
    Nanoseconds arrived{0};
    std::uint64_t confirmed = 0;
  };
  using Rates = std::array<double, 16>;

  void update_period(Time now, std::uint64_t pushed, std::uint64_t confirmed, Nanoseconds arrived);
  void update_runs(Time now, std::uint64_t confirmed, Nanoseconds arrived);
  void measure(const Run& run, std::uint64_t confirmed, Nanoseconds arrived);

  // Shorter periods are noise; longer ones are cut, so that a path that is never idle is measured.
  static constexpr std::uint64_t kLeastBytes = 4096;
  static constexpr std::uint64_t kLeastBytesOfShortRun = std::uint64_t{64} << 10;
  static constexpr std::chrono::milliseconds kLeast{5};
  static constexpr std::chrono::milliseconds kLongest{250};

  bool open_ = false;
  Time began_{};
  std::uint64_t base_ = 0;       // confirmed when the period began
  Nanoseconds base_arrived_{0};  // when the last of that arrived
  bool follows_ = false;         // another one: something was in flight when it began
  Rates periods_{};
  std::size_t next_period_ = 0;

  std::deque<Run> runs_;
  Rates run_rates_{};
  std::size_t next_run_rate_ = 0;
  double run_rate_ = 0;
  SlidingMinimum nearest_;  // one way, from our clock to the peer's
};

}  // namespace strait::net
