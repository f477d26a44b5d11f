#pragma once

#include <chrono>
#include <cstdint>
#include <limits>

namespace strait::net {

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
