#pragma once

#include <chrono>
#include <cstdint>
#include <random>

namespace strait::net {

// The properties of a path between two processes, per direction. All zero: the path adds nothing.
struct PathConditions {
  std::int64_t bits_per_second = 0;       // 0: not limited
  std::chrono::nanoseconds delay{0};      // one way
  double loss = 0;                        // fraction of lost packets
  std::chrono::nanoseconds cut_every{0};  // connections break this often; 0: never
  std::chrono::nanoseconds cut_for{std::chrono::seconds(1)};  // and stay broken for this long

  bool operator==(const PathConditions&) const = default;
  bool any() const { return *this != PathConditions{.cut_for = cut_for}; }
  // For forecasts: the bytes per second that TCP reaches on such a path in the long run; 0: not
  // limited.
  double mean_bytes_per_second() const;
};

// One direction of such a path, as TCP sees it: bytes are serialised at the rate, then delayed, and
// arrive in order. A lost packet delays later ones by a round trip and halves the bytes that may be
// in flight, as in TCP Reno. Pure: the caller passes times.
class PathQueue {
 public:
  using Time = std::chrono::steady_clock::time_point;

  PathQueue(const PathConditions& conditions, std::uint64_t seed);

  // When the next bytes may enter; their sender has to wait until then.
  Time ready() const;
  // This many bytes enter, at `now` >= ready(). Returns when they arrive, which is never before
  // earlier bytes.
  Time enter(std::size_t bytes, Time now);

 private:
  void lose(Time arrives);

  PathConditions conditions_;
  std::mt19937_64 random_;
  Time idle_from_{};      // the serialiser is busy until then
  Time arrived_{};        // when the latest bytes arrive
  double window_;         // bytes that may be in flight; only with losses
  double threshold_;      // above it the window grows by a packet per round trip
  Time reduced_until_{};  // at most one reduction per round trip
};

}  // namespace strait::net
