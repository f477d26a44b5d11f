#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "launcher/hosts/tcp_socket.h"

namespace strait::hosts {

// Bytes received until `seconds` of the receiving host's steady clock.
struct FlowSample {
  double seconds = 0;
  std::uint64_t bytes = 0;
};

// Bytes per second of a flow in its steady state: TCP's slow start is left out, and a short stall
// of either end does not count. 0: too few samples. Samples in order of time.
double flow_rate_of_samples(std::span<const FlowSample> samples);

// The sum of parallel flows, sampled by one clock.
std::vector<FlowSample> merge_flows(std::span<const std::vector<FlowSample>> flows);

// Sending and counting the bytes of a flow. The counting end decides how long it takes: the other
// end sends until the connection is closed.

inline constexpr std::size_t kEchoBytes = 32;

// Sends until the other end closes the connection, or PathError at the deadline.
void pour(int socket, Instant deadline);

// Counts what arrives on the connections, which are one flow together, for so many seconds from the
// first byte on. Ends early if one breaks. A sample per 0.5 ms at most.
std::vector<FlowSample> count(const std::vector<int>& sockets, double seconds, Instant deadline);

// The receiving end: reads for how long, counts, and sends the samples back.
void sample_and_report(int socket, Instant deadline);

// The sending end: sends for how long, then the bytes, and reads the samples.
std::vector<FlowSample> send_and_sample(int socket, double seconds, Instant deadline);

}  // namespace strait::hosts
