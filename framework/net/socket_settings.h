#pragma once

#include <zmq.hpp>

#include "framework/net/identity.h"

namespace strait::net {

// The settings of every link socket; the source gives the reasons.
void apply_link_settings(zmq::socket_t& socket, const std::string& host);

// The CURVE server side: it accepts only the keys that the gate allows.
void serve_curve(zmq::socket_t& socket, const CurveKeyPair& keys, const std::string& domain);
// This socket proves itself with `keys`; the server must hold `server_key`.
void call_with_curve(zmq::socket_t& socket, const CurveKeyPair& keys,
                     const std::string& server_key);

// Throws LinkError::unusable for a libzmq with known vulnerabilities.
void require_safe_libzmq();
void require_safe_libzmq(int major, int minor, int patch);

// The kernel's unique number of a socket. A later socket with the same descriptor has another one.
// 0: not a socket.
std::uint64_t socket_cookie(int descriptor);

// Tells whether bytes still arrive on the connection of a link, long before they make a whole
// message. libzmq owns the connection and may close it at any time. Its descriptor may then belong
// to another one, so the kernel's cookie is compared. Used by the net thread only.
//
// Over several flows, the kernel may hold few unsent bytes of each: what waits there can take no
// other flow, and a buffer that has grown takes seconds on a flow that has become slow.
class ConnectionBytes {
 public:
  void follow(const zmq::message_t& message, bool several_flows);  // the connection it came on
  bool grew();  // since the last call or the last new connection

  // Of the connection that the last message came on: bbr, or the system's own congestion control.
  void use_bbr(bool wanted);
  bool can_use_bbr() const;  // the system's own is another one, and the kernel did not refuse

 private:
  int descriptor_ = -1;
  std::uint64_t cookie_ = 0;
  std::uint64_t received_ = 0;
  std::string usual_control_;
  bool uses_bbr_ = false;
  bool refused_ = false;
};

}  // namespace strait::net
