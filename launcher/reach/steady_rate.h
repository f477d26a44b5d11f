#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace strait::reach {

// At `seconds` of the counting host's steady clock so many bytes had come.
struct FlowSample {
  double seconds = 0;
  std::uint64_t bytes = 0;
};

// Bytes per second of a flow once it runs evenly: TCP's beginning is left out, and a moment in
// which somebody was held up does not count. 0 where too little came to tell. Samples in order of
// time.
double steady_rate(std::span<const FlowSample> samples);

// Of flows side by side, counted by one clock: their sum.
std::vector<FlowSample> merge_flows(std::span<const std::vector<FlowSample>> flows);

}  // namespace strait::reach
