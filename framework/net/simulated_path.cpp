#include "framework/net/simulated_path.h"

#include <arpa/inet.h>
#include <linux/tcp.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/socket.h>

#include <algorithm>
#include <cstring>
#include <deque>

#include "framework/net/endpoint.h"
#include "framework/net/link_error.h"

namespace strait::net {
namespace {

// How often a thread looks at what other threads have set.
constexpr std::chrono::milliseconds kLook{50};
// Pieces follow the rate, so that a slow path delays bytes evenly instead of in bursts.
constexpr std::size_t kLargestPiece = std::size_t{64} << 10;
constexpr std::size_t kLeastPiece = 64;
// The most that one direction holds: more than a socket can keep in flight on any path.
constexpr std::size_t kMostHeld = std::size_t{64} << 20;
constexpr unsigned long kTimerSlack = 1'000;  // ns; timers are 50 us late by default

sockaddr_in loopback(std::uint16_t port) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(port);
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  return address;
}

void require(bool fine, const char* what) {
  if (fine) return;
  throw LinkError(LinkError::Kind::unusable,
                  std::string("a simulated path cannot ") + what + ": " + std::strerror(errno));
}

// Bounds what was received and not yet read, so that the sender feels the simulated rate. Set
// before connecting; accepted sockets inherit it.
void keep_queue_small(int descriptor) {
  const int bytes = 16 << 10;
  setsockopt(descriptor, SOL_SOCKET, SO_RCVBUF, &bytes, sizeof bytes);
}

void send_at_once(int descriptor) {
  // Nagle's algorithm would add delays that the conditions do not have.
  const int on = 1;
  setsockopt(descriptor, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
}

// The bytes of five milliseconds, so that they arrive evenly.
std::size_t piece_of(const PathConditions& conditions) {
  if (conditions.bits_per_second == 0) return kLargestPiece;
  const auto bytes = static_cast<std::size_t>(conditions.bits_per_second / 8 / 200);
  return std::clamp(bytes, kLeastPiece, kLargestPiece);
}

// Waits for bytes on `descriptor`, or for the timeout. -1: only for the timeout.
bool wait_for_bytes(int descriptor, std::chrono::nanoseconds timeout) {
  const auto left = std::max(timeout, std::chrono::nanoseconds(0)).count();
  const timespec time{left / 1'000'000'000, left % 1'000'000'000};
  pollfd waited{descriptor, POLLIN, 0};
  return ppoll(&waited, 1, &time, nullptr) > 0;
}

// Each path has its first cut at another moment.
std::chrono::nanoseconds first_cut(const PathConditions& conditions, std::uint64_t seed) {
  std::mt19937_64 random(seed);
  const std::chrono::duration<double> every(conditions.cut_every);
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
      every * std::uniform_real_distribution<double>(0.5, 1.5)(random));
}

}  // namespace

SimulatedPath::SimulatedPath(const PathConditions& conditions, std::uint64_t seed)
    : seed_(seed),
      listener_(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)),
      current_{conditions, 0},
      next_cut_(Clock::now() + first_cut(conditions, seed)) {
  sockaddr_in address = loopback(0);
  socklen_t size = sizeof address;
  auto* generic = reinterpret_cast<sockaddr*>(&address);
  require(listener_.open(), "open a socket");
  keep_queue_small(listener_.number());
  require(bind(listener_.number(), generic, size) == 0, "bind a port");
  require(listen(listener_.number(), 16) == 0, "listen");
  require(getsockname(listener_.number(), generic, &size) == 0, "find its port");
  port_ = ntohs(address.sin_port);
  acceptor_ = std::thread([this] { accept_all(); });
}

SimulatedPath::~SimulatedPath() {
  stopping_ = true;
  shutdown(listener_.number(), SHUT_RDWR);
  acceptor_.join();
  cut();
  std::list<Connection> all;
  {
    const MutexLock lock(mutex_);
    all.splice(all.end(), open_);
  }
  join(all);
}

// Called without the lock, because the pumps take it.
void SimulatedPath::join(std::list<Connection>& connections) {
  for (Connection& connection : connections) {
    for (std::thread& pump : connection.pumps) pump.join();
  }
}

std::string SimulatedPath::endpoint() const { return Endpoint{"127.0.0.1", port_}.text(); }

void SimulatedPath::forward_to(const std::string& endpoint) {
  const auto parsed = Endpoint::parse(endpoint);
  if (!parsed) {
    throw LinkError(LinkError::Kind::unusable, "\"" + endpoint + "\" is not an endpoint");
  }
  target_ = parsed->port;
}

void SimulatedPath::set(const PathConditions& conditions) {
  const MutexLock lock(mutex_);
  current_ = {conditions, current_.version + 1};
}

SimulatedPath::Current SimulatedPath::current() const {
  const MutexLock lock(mutex_);
  return current_;
}

void SimulatedPath::freeze_open() {
  const MutexLock lock(mutex_);
  for (Connection& connection : open_) connection.frozen = true;
}

void SimulatedPath::cut() {
  held_ = false;
  const MutexLock lock(mutex_);
  for (Connection& connection : open_) {
    shutdown(connection.near.number(), SHUT_RDWR);
    shutdown(connection.far.number(), SHUT_RDWR);
  }
}

void SimulatedPath::reset() {
  {
    const MutexLock lock(mutex_);
    sockaddr unspecified{};
    unspecified.sa_family = AF_UNSPEC;  // on Linux this resets the connection
    for (Connection& connection : open_) {
      // Fails for a connection that is already reset.
      static_cast<void>(connect(connection.near.number(), &unspecified, sizeof unspecified));
      static_cast<void>(connect(connection.far.number(), &unspecified, sizeof unspecified));
    }
  }
  cut();
}

void SimulatedPath::cut_if_due() {
  const PathConditions conditions = current().conditions;
  const auto now = Clock::now();
  if (conditions.cut_every.count() == 0 || now < next_cut_) return;
  cut_until_ = now + conditions.cut_for;
  next_cut_ = cut_until_ + conditions.cut_every;
  cut();
}

// Joins connections that have ended, so that a path that is cut for days does not collect them.
void SimulatedPath::join_ended() {
  std::list<Connection> ended;
  {
    const MutexLock lock(mutex_);
    for (auto one = open_.begin(); one != open_.end();) {
      const auto next = std::next(one);
      if (one->open == 0) ended.splice(ended.end(), open_, one);
      one = next;
    }
  }
  join(ended);
}

void SimulatedPath::accept_all() {
  while (!stopping_) {
    const bool called = wait_for_bytes(listener_.number(), kLook);
    cut_if_due();
    join_ended();
    if (!called) continue;
    FileDescriptor near(accept4(listener_.number(), nullptr, nullptr, SOCK_CLOEXEC));
    if (near.open() && Clock::now() >= cut_until_) serve(std::move(near));
  }
}

void SimulatedPath::serve(FileDescriptor near) {
  FileDescriptor far(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  keep_queue_small(far.number());
  const sockaddr_in address = loopback(target_);
  if (target_ == 0 ||
      connect(far.number(), reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0) {
    return;
  }
  send_at_once(near.number());
  send_at_once(far.number());
  const std::uint64_t number = ++connections_;
  // The pumps start under the lock, so that cut() sees a connection and its sockets together.
  const MutexLock lock(mutex_);
  Connection& connection = open_.emplace_back();
  connection.near = std::move(near);
  connection.far = std::move(far);
  const auto carry = [this, &connection, number](int from, int to, std::uint64_t direction) {
    pump(connection, from, to, seed_ + 2 * number + direction);
    --connection.open;
  };
  connection.pumps.emplace_back(carry, connection.near.number(), connection.far.number(), 0);
  connection.pumps.emplace_back(carry, connection.far.number(), connection.near.number(), 1);
}

void SimulatedPath::pump(Connection& connection, int from, int to, std::uint64_t seed) {
  struct Piece {
    Clock::time_point arrives;
    std::vector<char> bytes;
  };
  prctl(PR_SET_TIMERSLACK, kTimerSlack, 0, 0, 0);
  std::deque<Piece> in_flight;
  std::size_t held = 0;
  Current now_valid = current();
  PathQueue queue(now_valid.conditions, seed);
  bool ended = false;
  bool broken = false;
  while (!broken && !(ended && in_flight.empty())) {
    if (Current next = current(); next.version != now_valid.version) {
      now_valid = next;
      queue = PathQueue(now_valid.conditions, seed);
    }
    auto now = Clock::now();
    while (!broken && !in_flight.empty() && in_flight.front().arrives <= now) {
      const std::vector<char>& bytes = in_flight.front().bytes;
      const auto size = static_cast<ssize_t>(bytes.size());
      broken = send(to, bytes.data(), bytes.size(), MSG_NOSIGNAL) != size;
      held -= bytes.size();
      in_flight.pop_front();
      now = Clock::now();
    }
    const bool held_back = held_ && from == connection.near.number();
    const bool may_read = !ended && !held_back && held < kMostHeld;
    const bool reads = may_read && queue.ready() <= now;
    auto wake = now + kLook;
    if (!in_flight.empty()) wake = std::min(wake, in_flight.front().arrives);
    if (may_read && !reads) wake = std::min(wake, queue.ready());
    if (broken || !wait_for_bytes(reads ? from : -1, wake - now)) continue;
    std::vector<char> bytes(piece_of(now_valid.conditions));
    const ssize_t size = recv(from, bytes.data(), bytes.size(), 0);
    ended = size <= 0;
    // Bytes in flight are lost with a connection that was cut.
    if (size < 0) broken = true;
    if (ended || frozen_ || connection.frozen) continue;
    bytes.resize(static_cast<std::size_t>(size));
    connection.bytes += bytes.size();
    if (cut_after_ != 0 && connection.bytes > cut_after_) break;
    held += bytes.size();
    const auto arrives = queue.enter(bytes.size(), Clock::now());
    in_flight.push_back({arrives, std::move(bytes)});
  }
  shutdown(from, SHUT_RDWR);
  shutdown(to, SHUT_RDWR);
}

}  // namespace strait::net
