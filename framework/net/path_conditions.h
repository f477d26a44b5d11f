#pragma once

#include <chrono>
#include <cstdint>
#include <random>

namespace strait::net {

// What a path between two processes is like, each direction alone. All zero: as good as the machine
// makes it.
struct PathConditions {
  std::int64_t bits_per_second = 0;       // 0: not limited
  std::chrono::nanoseconds delay{0};      // one way
  double loss = 0;                        // share of packets
  std::chrono::nanoseconds cut_every{0};  // connections break this often; 0: never
  std::chrono::nanoseconds cut_for{std::chrono::seconds(1)};  // and stay broken so long

  bool operator==(const PathConditions&) const = default;
  bool any() const { return *this != PathConditions{.cut_for = cut_for}; }
  // For forecasts. Bytes per second that TCP gets out of such a path in the long run; 0: not
  // limited.
  double mean_bytes_per_second() const;
};

// One direction of such a path, as TCP sees it: bytes are serialised at the rate, then delayed, and
// arrive in order. A lost packet holds up what is behind it for a round trip and halves the bytes
// that may be in flight, as TCP Reno does. Pure: the caller hands in times.
class PathQueue {
 public:
  using Time = std::chrono::steady_clock::time_point;

  PathQueue(const PathConditions& conditions, std::uint64_t seed);

  // From when on the next piece may enter; before, its sender has to wait.
  Time ready() const;
  // This many bytes enter, at `now` >= ready(). Returns when they arrive; never earlier than those
  // before them.
  Time enter(std::size_t bytes, Time now);

 private:
  void lose(Time arrives);

  PathConditions conditions_;
  std::mt19937_64 random_;
  Time idle_from_{};      // the serialiser is busy until then
  Time arrived_{};        // of the last piece
  double window_;         // bytes that may be in flight; only with losses
  double threshold_;      // from which on the window grows by a packet a round trip
  Time reduced_until_{};  // one reduction a round trip
};

}  // namespace strait::net
