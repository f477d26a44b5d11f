#include "tests/framework/net/tcp_relay.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <system_error>

#include "framework/net/endpoint.h"

namespace strait::net {
namespace {

sockaddr_in loopback(std::uint16_t port) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(port);
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  return address;
}

void require(bool fine, const char* what) {
  if (!fine) throw std::system_error(errno, std::generic_category(), what);
}

// Of what was received and not yet read; before a connection is made. Accepted sockets inherit it.
void keep_queue_small(int descriptor) {
  const int bytes = 16 << 10;
  setsockopt(descriptor, SOL_SOCKET, SO_RCVBUF, &bytes, sizeof bytes);
}

}  // namespace

TcpRelay::TcpRelay() : listener_(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
  sockaddr_in address = loopback(0);
  socklen_t size = sizeof address;
  auto* generic = reinterpret_cast<sockaddr*>(&address);
  keep_queue_small(listener_);
  require(bind(listener_, generic, size) == 0, "bind of the relay");
  require(listen(listener_, 16) == 0, "listen of the relay");
  require(getsockname(listener_, generic, &size) == 0, "name of the relay");
  port_ = ntohs(address.sin_port);
  acceptor_ = std::thread([this] { accept_all(); });
}

TcpRelay::~TcpRelay() {
  stopping_ = true;
  changed_.notify_all();
  shutdown(listener_, SHUT_RDWR);
  acceptor_.join();
  cut();
  const MutexLock lock(mutex_);
  for (Connection& connection : open_) {
    for (std::thread& pump : connection.pumps) pump.join();
    close(connection.near);
    close(connection.far);
  }
  close(listener_);
}

std::string TcpRelay::endpoint() const { return Endpoint{"127.0.0.1", port_}.text(); }

void TcpRelay::forward_to(const std::string& endpoint) {
  target_ = Endpoint::parse(endpoint)->port;
}

void TcpRelay::freeze_open() {
  const MutexLock lock(mutex_);
  for (Connection& connection : open_) connection.frozen = true;
}

void TcpRelay::cut() {
  held_ = false;
  held_.notify_all();
  const MutexLock lock(mutex_);
  for (Connection& connection : open_) {
    shutdown(connection.near, SHUT_RDWR);
    shutdown(connection.far, SHUT_RDWR);
  }
}

void TcpRelay::reset() {
  {
    const MutexLock lock(mutex_);
    sockaddr nobody{};
    nobody.sa_family = AF_UNSPEC;  // which is how Linux is told to break a connection off
    for (Connection& connection : open_) {
      connect(connection.near, &nobody, sizeof nobody);
      connect(connection.far, &nobody, sizeof nobody);
    }
  }
  cut();
}

void TcpRelay::accept_all() {
  while (!stopping_) {
    const int near = accept4(listener_, nullptr, nullptr, SOCK_CLOEXEC);
    if (near >= 0) serve(near);
  }
}

void TcpRelay::serve(int near) {
  const int far = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  keep_queue_small(far);
  const sockaddr_in address = loopback(target_);
  if (target_ == 0 ||
      connect(far, reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0) {
    close(near);
    close(far);
    return;
  }
  ++connections_;
  const MutexLock lock(mutex_);
  Connection& connection = open_.emplace_back();
  connection.near = near;
  connection.far = far;
  connection.pumps.emplace_back(
      [this, &connection] { pump(connection, connection.near, connection.far); });
  connection.pumps.emplace_back(
      [this, &connection] { pump(connection, connection.far, connection.near); });
}

void TcpRelay::carry(ssize_t bytes, std::uint64_t rate) {
  using Clock = std::chrono::steady_clock;
  const std::chrono::duration<double> takes(static_cast<double>(bytes) / static_cast<double>(rate));
  const auto arrives = Clock::now() + std::chrono::duration_cast<Clock::duration>(takes);
  const MutexLock lock(mutex_);
  while (!stopping_ && changed_.wait_until(mutex_, arrives)) {
  }
}

void TcpRelay::pump(Connection& connection, int from, int to) {
  std::array<char, 4096> buffer{};
  const auto piece = [&] {
    const std::uint64_t rate = rate_;
    return rate == 0 ? buffer.size() : std::clamp<std::size_t>(rate / 20, 1, buffer.size());
  };
  for (ssize_t size = 0; (size = recv(from, buffer.data(), piece(), 0)) > 0;) {
    if (const std::uint64_t rate = rate_; rate > 0) carry(size, rate);
    if (from == connection.near) held_.wait(true);
    if (frozen_ || connection.frozen) continue;
    connection.bytes += static_cast<std::uint64_t>(size);
    if (cut_after_ != 0 && connection.bytes > cut_after_) break;
    if (send(to, buffer.data(), static_cast<std::size_t>(size), MSG_NOSIGNAL) != size) break;
  }
  shutdown(from, SHUT_RDWR);
  shutdown(to, SHUT_RDWR);
}

}  // namespace strait::net
