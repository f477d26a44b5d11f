#include "launcher/hosts/forwarding.h"

#include <fmt/format.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <memory>

#include "framework/net/identity.h"

namespace strait::hosts {

namespace {

// More than the links of one host that connect at the same time.
constexpr int kBacklog = 64;
// The kernel closes a connection whose data was not acknowledged for so long.
constexpr std::uint32_t kUnackedMilliseconds = 15'000;

[[noreturn]] void throw_path(const std::string& doing, int error) {
  throw PathError(fmt::format("{}: {}", doing, std::strerror(error)));
}

using Addresses = std::unique_ptr<addrinfo, decltype(&freeaddrinfo)>;

Addresses resolve(const net::Endpoint& endpoint) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_NUMERICSERV;
  addrinfo* found = nullptr;
  const std::string port = std::to_string(endpoint.port);
  const int error = getaddrinfo(endpoint.host.c_str(), port.c_str(), &hints, &found);
  if (error != 0) {
    throw PathError(fmt::format("{} is not an address: {}", endpoint.host, gai_strerror(error)));
  }
  return {found, &freeaddrinfo};
}

FileDescriptor socket_for(const addrinfo& address, const net::Endpoint& endpoint) {
  FileDescriptor made(
      ::socket(address.ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, IPPROTO_TCP));
  if (!made.open()) throw_path("opening a socket for " + endpoint.host_and_port(), errno);
  return made;
}

void set_option(int socket, int level, int option, int value) {
  // None of these decides whether bytes arrive; a kernel that lacks one is no reason to stop.
  static_cast<void>(::setsockopt(socket, level, option, &value, sizeof value));
}

void tune(int socket) {
  set_option(socket, IPPROTO_TCP, TCP_NODELAY, 1);
  // A relayed link has no heartbeats of its own at this level: a dead peer is noticed after 5 + 4 *
  // 2 s.
  set_option(socket, SOL_SOCKET, SO_KEEPALIVE, 1);
  set_option(socket, IPPROTO_TCP, TCP_KEEPIDLE, 5);
  set_option(socket, IPPROTO_TCP, TCP_KEEPINTVL, 2);
  set_option(socket, IPPROTO_TCP, TCP_KEEPCNT, 4);
  set_option(socket, IPPROTO_TCP, TCP_USER_TIMEOUT, static_cast<int>(kUnackedMilliseconds));
}

std::uint16_t port_of(int socket) {
  sockaddr_storage bound{};
  socklen_t size = sizeof bound;
  if (::getsockname(socket, static_cast<sockaddr*>(static_cast<void*>(&bound)), &size) != 0) {
    throw_path("asking for a bound port", errno);
  }
  std::uint16_t port = 0;  // at the same offset in both kinds of address
  static_assert(offsetof(sockaddr_in, sin_port) == offsetof(sockaddr_in6, sin6_port));
  std::memcpy(&port,
              static_cast<char*>(static_cast<void*>(&bound)) + offsetof(sockaddr_in, sin_port),
              sizeof port);
  return ntohs(port);
}

// Not open: the port is taken.
FileDescriptor try_to_bind(const net::Endpoint& endpoint) {
  const Addresses found = resolve(endpoint);
  FileDescriptor socket = socket_for(*found, endpoint);
  // Ports of a run that has just ended are in TIME_WAIT, and the next run takes the same range.
  set_option(socket.number(), SOL_SOCKET, SO_REUSEADDR, 1);
  if (::bind(socket.number(), found->ai_addr, found->ai_addrlen) == 0 &&
      ::listen(socket.number(), kBacklog) == 0) {
    return socket;
  }
  // The caller tries the next port. No other error goes away with another port.
  if (errno == EADDRINUSE) return FileDescriptor();
  throw_path("listening on " + endpoint.host_and_port(), errno);
}

constexpr std::string_view kPreambleMagic = "strait-reach/1 ";  // then the end, then the token
constexpr std::string_view kEnds = "bd";
constexpr std::size_t kTokenDigits = 32;
static_assert(kPreambleMagic.size() + 1 + kTokenDigits == kPreambleBytes);

}  // namespace

BoundPort listen_at(const std::string& address, std::pair<int, int> ports) {
  for (int port = ports.first; port <= std::max(ports.first, ports.second); ++port) {
    const net::Endpoint wanted{address, static_cast<std::uint16_t>(port)};
    FileDescriptor socket = try_to_bind(wanted);
    if (!socket.open()) continue;
    const std::uint16_t bound = port_of(socket.number());
    return {std::move(socket), {address, bound}};
  }
  const auto holder = net::port_holder(static_cast<std::uint16_t>(ports.first));
  throw PathError(fmt::format(
      "all ports {}-{} of {} are taken, {} by {}; free one or widen hosts.ports", ports.first,
      ports.second, address, ports.first, holder.value_or("another process")));
}

FileDescriptor accept_connection(int listener) {
  FileDescriptor caller(::accept4(listener, nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
  if (caller.open()) tune(caller.number());
  return caller;
}

FileDescriptor start_connect(const net::Endpoint& endpoint) {
  const Addresses found = resolve(endpoint);
  FileDescriptor socket = socket_for(*found, endpoint);
  tune(socket.number());
  if (::connect(socket.number(), found->ai_addr, found->ai_addrlen) != 0 && errno != EINPROGRESS) {
    throw_path(endpoint.host_and_port(), errno);
  }
  return socket;
}

std::string connect_error(int socket) {
  int error = 0;
  socklen_t size = sizeof error;
  if (::getsockopt(socket, SOL_SOCKET, SO_ERROR, &error, &size) != 0) error = errno;
  return error == 0 ? "" : std::strerror(error);
}

std::string Preamble::random_token() { return net::RunId::random().hex(); }

PreambleBytes to_bytes(const Preamble& preamble) {
  std::string words(kPreambleMagic);
  words += static_cast<char>(preamble.end);
  words += preamble.token;
  words.resize(kPreambleBytes);
  PreambleBytes bytes{};
  std::memcpy(bytes.data(), words.data(), words.size());
  return bytes;
}

std::optional<Preamble> parse_preamble(std::span<const std::byte> bytes) {
  // Of a fixed size, so that a stranger's connection is recognised without a parser.
  if (bytes.size() != kPreambleBytes) return std::nullopt;
  std::string words(bytes.size(), '\0');
  std::memcpy(words.data(), bytes.data(), bytes.size());
  const char end = words[kPreambleMagic.size()];
  if (!words.starts_with(kPreambleMagic) || kEnds.find(end) == std::string_view::npos) {
    return std::nullopt;
  }
  return Preamble{words.substr(kPreambleMagic.size() + 1), static_cast<Preamble::End>(end)};
}

namespace {

// Per direction. More would only add latency: TCP's own buffers hold what the path can.
constexpr std::size_t kMostBuffered = std::size_t{256} << 10;
// Most relayed connections are idle most of the time, so a buffer starts small and grows.
constexpr std::size_t kFirstBuffered = std::size_t{4} << 10;

// A socket without wanted events is left out (-1): poll(2) would report its POLLHUP in a busy loop.
pollfd poll_for(const FileDescriptor& socket, bool reads, bool writes) {
  const auto events = static_cast<short>((reads ? POLLIN : 0) | (writes ? POLLOUT : 0));
  return {events == 0 ? -1 : socket.number(), events, 0};
}

bool would_block(int error) { return error == EAGAIN || error == EINTR; }

}  // namespace

Forwarding::Forwarding(FileDescriptor near, FileDescriptor far, std::span<const std::byte> ahead)
    : near_socket_(std::move(near)), far_socket_(std::move(far)) {
  near_.memory.assign(ahead.begin(), ahead.end());
  near_.last = ahead.size();
}

bool Forwarding::Buffer::has_room() const { return !ended && last < kMostBuffered; }

std::array<pollfd, 2> Forwarding::waits_for() const {
  return {poll_for(near_socket_, near_.has_room(), !far_.empty()),
          poll_for(far_socket_, far_.has_room(), !near_.empty())};
}

bool Forwarding::fill(int from, Buffer& held) {
  if (!held.has_room()) return true;
  if (held.last == held.memory.size()) {
    held.memory.resize(std::clamp(2 * held.memory.size(), kFirstBuffered, kMostBuffered));
  }
  const std::span<std::byte> room(held.memory.data() + held.last, held.memory.size() - held.last);
  const ssize_t got = ::recv(from, room.data(), room.size(), 0);
  if (got < 0) return would_block(errno);
  held.ended = got == 0;
  held.last += static_cast<std::size_t>(got);
  return true;
}

bool Forwarding::drain(int to, Buffer& held) {
  while (!held.empty()) {
    const ssize_t sent =
        ::send(to, held.memory.data() + held.first, held.last - held.first, MSG_NOSIGNAL);
    if (sent < 0) return would_block(errno);
    held.first += static_cast<std::size_t>(sent);
  }
  held.first = held.last = 0;
  return !held.ended;
}

bool Forwarding::move() {
  const bool filled = fill(near_socket_.number(), near_) && fill(far_socket_.number(), far_);
  // Bytes that were read before one end was lost are still sent to the other.
  const bool near_goes_on = drain(far_socket_.number(), near_);
  const bool far_goes_on = drain(near_socket_.number(), far_);
  return filled && near_goes_on && far_goes_on;
}

void ForwardingSet::drop(const std::string& name) {
  std::erase_if(open_, [&](const Named& one) { return one.name == name; });
}

void ForwardingSet::append_to(std::vector<pollfd>& polls) const {
  for (const Named& one : open_) {
    const auto waits = one.forwarding.waits_for();
    polls.insert(polls.end(), waits.begin(), waits.end());
  }
}

void ForwardingSet::move(std::span<const pollfd> polls) {
  std::vector<Named> kept;
  kept.reserve(open_.size());
  for (std::size_t i = 0; i < open_.size(); ++i) {
    Named& one = open_[i];
    const bool ready = polls[2 * i].revents != 0 || polls[2 * i + 1].revents != 0;
    if (!ready || one.forwarding.move()) kept.push_back(std::move(one));
  }
  open_ = std::move(kept);
}

}  // namespace strait::hosts
