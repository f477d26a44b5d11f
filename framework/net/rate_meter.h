#pragma once

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>

namespace strait::net {

// How fast a path carries bytes, seen from the sending side without sending anything for it: bytes
// that the peer confirmed over the time in which something was under way. Pure: no clock, no lock.
//
// The round trip is part of that time, so a path that carries only small frames looks slower than
// it is; the best of the last periods is what counts.
class RateMeter {
 public:
  using Time = std::chrono::steady_clock::time_point;

  // After every change of either: bytes ever sent, and of them ever confirmed.
  void look(Time now, std::uint64_t sent, std::uint64_t confirmed);

  double bytes_per_second() const;  // 0: nothing was measured yet

 private:
  // Shorter periods are noise; longer ones are cut, so that a path that is never idle is measured.
  static constexpr std::uint64_t kLeastBytes = 4096;
  static constexpr std::chrono::milliseconds kLongest{250};

  bool open_ = false;
  Time began_{};
  std::uint64_t base_ = 0;  // confirmed when the period began
  std::array<double, 16> rates_{};
  std::size_t next_ = 0;
};

}  // namespace strait::net
