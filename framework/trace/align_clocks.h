#pragma once

#include <cstddef>
#include <span>
#include <vector>

namespace strait::trace {

// A message between processes on two clocks: each end's time by its own clock.
struct ClockedMessage {
  std::size_t from = 0;  // clocks, by index
  std::size_t to = 0;
  double sent = 0;
  double received = 0;
};

// What to add to the times of each clock, so that all agree with the first clock that messages in
// both directions connect them to, perhaps over others. As NTP does, it takes the fastest message
// there to take as long as the fastest one back; it errs by at most half of their sum. `guesses`,
// one per clock, are what is added where no messages connect two clocks.
std::vector<double> align_clocks(const std::vector<double>& guesses,
                                 std::span<const ClockedMessage> messages);

}  // namespace strait::trace
