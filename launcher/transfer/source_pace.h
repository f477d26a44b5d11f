#pragma once

#include <chrono>
#include <cstdint>

namespace strait::transfer {

// How quickly one source answers, and so how many chunks to ask of it at once: as many as the path
// holds in its round trip and a little more. Fewer leave it idle; more would be missing elsewhere.
// Pure: no clock.
class SourceWindow {
 public:
  using Time = std::chrono::steady_clock::time_point;
  using Seconds = std::chrono::duration<double>;
  static constexpr int kLeast = 2;
  static constexpr int kMost = 32;  // fits into the window of a link

  void round_trip(Seconds took);  // of a message that waited for nothing
  void asked(Time now);           // for one chunk
  void answered(Time now, std::uint64_t bytes);
  void let_go();  // the answer was none

  int room() const;  // chunks that may be asked for now
  int outstanding() const { return outstanding_; }
  // Until a chunk would be here that is asked for now.
  Seconds expected() const;
  Seconds round_trip() const { return round_trip_; }
  double bytes_per_second() const { return rate_; }  // 0: not known yet

 private:
  int outstanding_ = 0;
  Seconds round_trip_{0};
  bool round_trip_known_ = false;
  double rate_ = 0;
  Time measured_from_{};
  std::uint64_t measured_bytes_ = 0;
};

}  // namespace strait::transfer
