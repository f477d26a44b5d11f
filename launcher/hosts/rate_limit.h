#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>

namespace strait::transfer {

// Converts megabits per second to bytes per second.
constexpr double bytes_per_second(double megabits) { return megabits * 1e6 / 8; }

// When the next bytes may be sent so that the average rate stays below the limit. Pure: no clock.
class RateLimit {
 public:
  using Time = std::chrono::steady_clock::time_point;

  explicit RateLimit(double bytes_per_second = 0) : rate_(bytes_per_second) {}  // 0: no limit

  Time due() const { return due_; }
  void add(Time now, std::uint64_t bytes) {
    if (rate_ <= 0) return;
    const std::chrono::duration<double> takes(static_cast<double>(bytes) / rate_);
    due_ = std::max(due_, now) + std::chrono::duration_cast<Time::duration>(takes);
  }

 private:
  double rate_;
  Time due_{};
};

}  // namespace strait::transfer
