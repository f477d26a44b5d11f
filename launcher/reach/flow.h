#pragma once

#include <cstddef>
#include <vector>

#include "launcher/reach/steady_rate.h"
#include "launcher/reach/tcp_socket.h"

// How bytes are poured into a connection and counted where they come out. Who counts decides how
// long it takes: the other end pours until the connection is closed.
namespace strait::reach {

inline constexpr std::size_t kEchoBytes = 32;

// Sends until the other end has enough, or PathError at the deadline.
void pour(int socket, Instant deadline);

// Counts what comes out of the connections, which are one flow together, for so long from the first
// byte on. Ends early where one breaks. At most a few thousand samples.
std::vector<FlowSample> count(const std::vector<int>& sockets, double seconds, Instant deadline);

// As the far end of somebody who pours here: hears for how long, counts, and tells what came when.
void count_and_tell(int socket, Instant deadline);

// The other side of that: says for how long, pours, and hears how many bytes had come by when.
std::vector<FlowSample> pour_and_hear(int socket, double seconds, Instant deadline);

}  // namespace strait::reach
