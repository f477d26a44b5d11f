#pragma once

#include <array>
#include <chrono>
#include <cstddef>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>
#include <utility>

#include "framework/file_descriptor.h"
#include "framework/net/endpoint.h"

// Plain TCP for probes, measurements and relays, which are not links. All sockets are
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
FileDescriptor start_connect(const net::Endpoint& place);

// Why connecting failed; empty: it is connected.
std::string connect_error(int socket);

// Connects, or throws PathError at the deadline at the latest.
FileDescriptor dial(const net::Endpoint& place, Instant deadline);

// Waits for `events` of poll(2); false at the deadline.
bool await(int socket, short events, Instant deadline);

// All bytes, or PathError.
void send_all(int socket, std::span<const std::byte> bytes, Instant deadline);
void receive_all(int socket, std::span<std::byte> bytes, Instant deadline);

// The first bytes of each plain TCP connection: its purpose, and a token that the other end
// requires. The token protects sockets only: relayed links are encrypted from end to end, and
// measurements carry no data.
struct Preamble {
  enum class Purpose : char {
    relay_binds = 'b',  // relay: the end whose stage listens
    relay_dials = 'd',  // relay: the end whose stage connects
    greet = 'g',        // to get the number of the host
    echo = 'e',         // to get its bytes back
    receive = 'r',      // to receive bytes until it closes
    send = 's',         // to send bytes and get samples of their arrival
  };

  static std::string random_token();  // 32 hexadecimal digits, from the kernel's generator

  std::string token;
  Purpose purpose = Purpose::greet;
};

// The relay sends this to the listening end once the other end is connected.
inline constexpr std::byte kRelayGo{'g'};

inline constexpr std::size_t kPreambleBytes = 48;
using PreambleBytes = std::array<std::byte, kPreambleBytes>;

PreambleBytes to_bytes(const Preamble& preamble);
std::optional<Preamble> parse_preamble(std::span<const std::byte> bytes);

}  // namespace strait::hosts
