#pragma once

#include <cstdint>
#include <zmq.hpp>

namespace strait::net {

// The kernel's unique number of a socket. A later socket with the same descriptor has another one.
// 0: not a socket.
std::uint64_t socket_cookie(int descriptor);

// Tells whether bytes still arrive on the connection of a link, long before they make a whole
// message. libzmq owns the connection and may close it at any time. Its descriptor may then belong
// to another one, so the kernel's cookie is compared. Used by the net thread only.
class ConnectionBytes {
 public:
  void follow(const zmq::message_t& message);  // the connection that this came on
  bool grew();                                 // since the last call or the last new connection

 private:
  int descriptor_ = -1;
  std::uint64_t cookie_ = 0;
  std::uint64_t received_ = 0;
};

}  // namespace strait::net
