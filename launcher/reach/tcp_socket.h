#pragma once

#include <chrono>
#include <cstddef>
#include <span>
#include <stdexcept>
#include <string>
#include <utility>

#include "framework/net/endpoint.h"
#include "framework/store/file_descriptor.h"

// Plain TCP, for what is no link: to try and measure paths, and to pass bytes on. All sockets are
// non-blocking, are not inherited, send without delay and notice a peer that is gone.
namespace strait::reach {

using Instant = std::chrono::steady_clock::time_point;

// A path that does not do what was asked: the sentence names the place and the reason.
class PathError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

struct BoundPort {
  store::FileDescriptor socket;
  net::Endpoint endpoint;
};

// Listens on the first free port of the range, {0, 0}: any. PathError names address and range.
BoundPort listen_at(const std::string& address, std::pair<int, int> ports);

// Whoever has connected; not open where nobody has.
store::FileDescriptor take_caller(int listener);

// Starts to connect. The socket can be written to once it is there; what is wrong shows at the
// first use. PathError where the address is none.
store::FileDescriptor begin_dial(const net::Endpoint& place);

// Why a begun connection failed; empty: it stands.
std::string dial_trouble(int socket);

// Connects, or says by PathError what happened until the deadline.
store::FileDescriptor dial(const net::Endpoint& place, Instant deadline);

// Whether `events` of poll(2) have come before the deadline.
bool await(int socket, short events, Instant deadline);

// All or PathError.
void send_all(int socket, std::span<const std::byte> bytes, Instant deadline);
void receive_all(int socket, std::span<std::byte> bytes, Instant deadline);

int milliseconds_left(Instant deadline);

}  // namespace strait::reach
