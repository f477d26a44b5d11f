#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "launcher/reach/tcp_socket.h"

namespace strait::reach {

// At `seconds` of the counting host's steady clock so many bytes had come.
struct FlowSample {
  double seconds = 0;
  std::uint64_t bytes = 0;
};

// Bytes per second of a flow once it runs evenly: TCP's beginning is left out, and a moment in
// which somebody was held up does not count. 0 where too little came to tell. Samples in order of
// time.
double flow_rate_of_samples(std::span<const FlowSample> samples);

// Of flows side by side, counted by one clock: their sum.
std::vector<FlowSample> merge_flows(std::span<const std::vector<FlowSample>> flows);

// How bytes are poured into a connection and counted where they come out. Who counts decides how
// long it takes: the other end pours until the connection is closed.


inline constexpr std::size_t kEchoBytes = 32;

// Sends until the other end has enough, or PathError at the deadline.
void pour(int socket, Instant deadline);

// Counts what comes out of the connections, which are one flow together, for so long from the first
// byte on. Ends early where one breaks. At most a few thousand samples.
std::vector<FlowSample> count(const std::vector<int>& sockets, double seconds, Instant deadline);

// As the far end of somebody who pours here: hears for how long, counts, and tells what came when.
void sample_and_report(int socket, Instant deadline);

// The other side of that: says for how long, pours, and hears how many bytes had come by when.
std::vector<FlowSample> send_and_sample(int socket, double seconds, Instant deadline);

}  // namespace strait::reach
