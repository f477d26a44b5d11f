#pragma once

#include <poll.h>

#include <array>
#include <chrono>
#include <cstddef>
#include <span>
#include <stdexcept>
#include <vector>

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

// Forwards bytes between two connections in both directions. Its buffers are bounded, so a slow
// reader slows the sender, and grow with what comes, so a silent connection takes no memory. One
// thread, which polls for waits_for() and calls move(). Either connection may still be connecting;
// its errors show at the first move.
class Forwarding {
 public:
  // `ahead` is sent to `far` before the bytes from `near`.
  Forwarding(FileDescriptor near, FileDescriptor far, std::span<const std::byte> ahead = {});

  std::array<pollfd, 2> waits_for() const;

  // Moves what can be moved now. False: one connection has ended, and its last bytes were forwarded
  // as far as possible; destroy this object.
  bool move();

 private:
  // What was read from one side and not yet written to the other.
  struct Buffer {
    std::vector<std::byte> memory;
    std::size_t first = 0;
    std::size_t last = 0;
    bool ended = false;  // nothing more will come

    bool has_room() const;
    bool empty() const { return first == last; }
  };

  static bool fill(int from, Buffer& held);
  static bool drain(int to, Buffer& held);

  FileDescriptor near_socket_;
  FileDescriptor far_socket_;
  Buffer near_;  // from near, for far
  Buffer far_;
};

// The forwardings of one thread, by name.
class ForwardingSet {
 public:
  void add(const std::string& name, Forwarding forwarding) {
    open_.push_back({name, std::move(forwarding)});
  }
  void drop(const std::string& name);

  void append_to(std::vector<pollfd>& polls) const;

  // What append_to() put there, as poll(2) left it. Ended forwardings go.
  void move(std::span<const pollfd> polls);

  std::size_t size() const { return open_.size(); }

 private:
  struct Named {
    std::string name;
    Forwarding forwarding;
  };

  std::vector<Named> open_;
};

}  // namespace strait::hosts
