#pragma once

#include <array>
#include <chrono>
#include <cstddef>
#include <span>
#include <stdexcept>

#include "framework/file_descriptor.h"
#include "framework/net/endpoint.h"

// Plain TCP for relays, which forward the bytes of links without reading them. All sockets are
// non-blocking, are not inherited, send without delay and notice a dead peer.
namespace strait::hosts {

using Instant = std::chrono::steady_clock::time_point;

// A path that cannot be used: the message names the endpoint and the cause.
class PathError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

struct BoundPort {
  FileDescriptor socket;
  net::Endpoint endpoint;
};

// Listens on the first free port of the range, {0, 0}: any. PathError names address and range.
BoundPort listen_at(const std::string& address, std::pair<int, int> ports);

// The next inbound connection; not open if there is none.
FileDescriptor accept_connection(int listener);

// Starts to connect. The socket is writable once it is connected; errors show at the first use.
// PathError: not an address.
FileDescriptor start_connect(const net::Endpoint& endpoint);

// Why connecting failed; empty: it is connected.
std::string connect_error(int socket);

// The first bytes of each connection to a relay: which end of the link it is, and the link's token.
// The token protects sockets only: relayed links are encrypted from end to end.
struct Preamble {
  enum class End : char {
    binds = 'b',  // its stage listens
    dials = 'd',  // its stage connects
  };

  static std::string random_token();  // 32 hexadecimal digits, from the kernel's generator

  std::string token;
  End end = End::binds;
};

// The relay sends this to the listening end once the other end is connected.
inline constexpr std::byte kRelayGo{'g'};

inline constexpr std::size_t kPreambleBytes = 48;
using PreambleBytes = std::array<std::byte, kPreambleBytes>;

PreambleBytes to_bytes(const Preamble& preamble);
std::optional<Preamble> parse_preamble(std::span<const std::byte> bytes);

}  // namespace strait::hosts
