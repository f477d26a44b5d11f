#pragma once

#include <chrono>
#include <cstdint>
#include <limits>

namespace strait::net {

// How large a chunk of a frame may be, so that it takes a path of any speed well below the time
// after which a silent path is given up. Pure: no clock, no lock.
//
// A measured rate is the best of some time, and a path may get slow at once. So while something was
// in flight all the time, a path is taken to be no faster than a few times what it has confirmed.
class ChunkSize {
 public:
  using Time = std::chrono::steady_clock::time_point;

  // On a path that is not known, and the least ever: 3.3 s at 10 kbit/s.
  static constexpr std::uint64_t kLeast = 4096;

  // The places in the stream of bytes up to which all is sent, and up to which the peer has it.
  void update(Time now, std::uint64_t sent, std::uint64_t confirmed);

  // `rate`: bytes per second that were measured; 0: not yet.
  std::uint64_t limit(double rate) const;
  // Of a frame of this size at most, or a path that was once thought to be fast gets whole frames,
  // whose confirmations never show that it is not.
  static std::uint64_t part_of(std::uint64_t frame_bytes);

 private:
  bool busy_ = false;
  Time began_{};
  std::uint64_t base_ = 0;                                 // confirmed when the interval began
  double most_ = std::numeric_limits<double>::infinity();  // bytes per second
};

}  // namespace strait::net
