#pragma once

#include <cstdint>
#include <zmq.hpp>

namespace strait::net {

// The kernel's number of a socket: a later one of the same descriptor has another; 0: it is no
// socket.
std::uint64_t socket_cookie(int descriptor);

// Whether bytes still arrive on the connection that a link's messages come on, long before they
// make a whole message. libzmq owns the connection and may close it at any time; its descriptor may
// then be another one's, so the kernel's cookie is compared. Belongs to the net thread.
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
