#pragma once

#include <array>
#include <chrono>
#include <cstddef>
#include <optional>
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
store::FileDescriptor accept_connection(int listener);

// Starts to connect. The socket can be written to once it is there; what is wrong shows at the
// first use. PathError where the address is none.
store::FileDescriptor start_connect(const net::Endpoint& place);

// Why a begun connection failed; empty: it stands.
std::string connect_error(int socket);

// Connects, or says by PathError what happened until the deadline.
store::FileDescriptor dial(const net::Endpoint& place, Instant deadline);

// Whether `events` of poll(2) have come before the deadline.
bool await(int socket, short events, Instant deadline);

// All or PathError.
void send_all(int socket, std::span<const std::byte> bytes, Instant deadline);
void receive_all(int socket, std::span<std::byte> bytes, Instant deadline);

int milliseconds_left(Instant deadline);


// What a plain TCP connection of ours says first: what it wants, and the token that lets it in and
// nobody else. It guards sockets only. What a relayed link carries stays sealed from end to end,
// and measurements carry nothing.
struct Preamble {
  enum class Purpose : char {
    relay_binds = 'b',  // to be joined with the end that dials; its stage listens
    relay_dials = 'd',  // the other end
    greet = 'g',        // to hear who is there
    echo = 'e',         // its words back
    receive = 'r',      // bytes, as many as come
    send = 's',         // to be told how fast its bytes come
  };

  static std::string random_token();  // 32 hexadecimal digits, from the kernel's generator

  std::string token;
  Purpose purpose = Purpose::greet;
};

// What the relay says to the end that binds once the other is there.
inline constexpr std::byte kRelayGo{'g'};

inline constexpr std::size_t kPreambleBytes = 48;
using PreambleBytes = std::array<std::byte, kPreambleBytes>;

PreambleBytes to_bytes(const Preamble& preamble);
std::optional<Preamble> parse_preamble(std::span<const std::byte> bytes);


// A descriptor that poll(2) understands, by which other threads call one that waits there. Many
// raises are one wake.
class WakeSignal {
 public:
  WakeSignal();
  void raise();
  void lower();
  int number() const { return event_.number(); }

 private:
  store::FileDescriptor event_;
};

}  // namespace strait::reach
