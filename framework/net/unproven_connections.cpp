#include "framework/net/unproven_connections.h"

#include <sys/socket.h>

#include <algorithm>

#include "framework/net/connection_bytes.h"

namespace strait::net {

void UnprovenConnections::accepted(int descriptor) {
  const std::uint64_t cookie = socket_cookie(descriptor);
  if (cookie == 0) return;  // already closed
  waiting_.push_back({descriptor, cookie});
  if (waiting_.size() <= kMost) return;
  const Connection oldest = waiting_.front();
  waiting_.pop_front();
  // libzmq sees the end of the stream and closes the connection.
  if (socket_cookie(oldest.descriptor) == oldest.cookie) ::shutdown(oldest.descriptor, SHUT_RDWR);
}

void UnprovenConnections::proven(int descriptor) {
  const auto found = std::ranges::find(waiting_, descriptor, &Connection::descriptor);
  if (found != waiting_.end()) waiting_.erase(found);
}

}  // namespace strait::net
