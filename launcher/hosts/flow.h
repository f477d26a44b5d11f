#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace strait::hosts {

// Bytes received until `seconds` of the receiving host's steady clock.
struct FlowSample {
  double seconds = 0;
  std::uint64_t bytes = 0;
};

// Bytes per second of a flow in its steady state: TCP's slow start is left out, and a short stall
// of either end does not count. 0: too few samples. Samples in order of time.
double flow_rate_of_samples(std::span<const FlowSample> samples);

}  // namespace strait::hosts
