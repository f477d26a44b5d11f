#include "framework/net/connection_bytes.h"

#include <linux/tcp.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <cstddef>
#include <utility>

namespace strait::net {
namespace {

// Payload only. The kernel's acknowledgements do not count, whether they come from the peer or from
// a middlebox. 0: unknown.
std::uint64_t received_on(int descriptor) {
  tcp_info info{};
  socklen_t size = sizeof info;
  if (getsockopt(descriptor, IPPROTO_TCP, TCP_INFO, &info, &size) != 0) return 0;
  // An older kernel fills less of the structure.
  if (size < offsetof(tcp_info, tcpi_bytes_received) + sizeof info.tcpi_bytes_received) return 0;
  return info.tcpi_bytes_received;
}

}  // namespace

std::uint64_t socket_cookie(int descriptor) {
  std::uint64_t cookie = 0;
  socklen_t size = sizeof cookie;
  if (getsockopt(descriptor, SOL_SOCKET, SO_COOKIE, &cookie, &size) != 0) return 0;
  return cookie;
}

void ConnectionBytes::follow(const zmq::message_t& message) {
  const int descriptor = zmq_msg_get(message.handle(), ZMQ_SRCFD);
  if (descriptor < 0 || descriptor == descriptor_) return;
  descriptor_ = descriptor;
  cookie_ = socket_cookie(descriptor);
  received_ = received_on(descriptor);
}

bool ConnectionBytes::grew() {
  if (descriptor_ < 0) return false;
  const std::uint64_t received = received_on(descriptor_);
  // The cookie is read after the bytes, so that both belong to the same connection.
  if (cookie_ == 0 || socket_cookie(descriptor_) != cookie_) {
    descriptor_ = -1;  // the next message names its successor
    return false;
  }
  return received > std::exchange(received_, received);
}

}  // namespace strait::net
