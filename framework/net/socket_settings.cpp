#include "framework/net/socket_settings.h"

#include <fmt/format.h>

#include <tuple>

#include "framework/net/link_error.h"
#include "framework/net/link_protocol.h"
#include "framework/net/wire_format.h"

namespace strait::net {
namespace {

// Every libzmq since 4.3.0 takes this option; its header names it among the drafts only.
constexpr int kZapEnforceDomain = 93;

constexpr int kUnconfirmedMs = 20'000;

}  // namespace

void apply_link_settings(zmq::socket_t& socket, const std::string& host) {
  namespace opt = zmq::sockopt;
  socket.set(opt::ipv6, host.find(':') != std::string::npos);
  // A few chunks in the sending queue; the window in bytes is the real bound, and what waits here
  // is what a message of ours has to wait for.
  socket.set(opt::sndhwm, 4);
  // None for receiving: the peer's window bounds what can come.
  socket.set(opt::rcvhwm, 0);
  // Nothing is owed by a socket: the window holds what the peer does not have. A final message is
  // given its second where the socket is closed.
  socket.set(opt::linger, 0);
  socket.set(opt::immediate, false);
  // No heartbeats of libzmq's: version 4.3.4 aborts the process when one falls due on a connection
  // that broke while its data was not read, as a closed socket does not. The link's own heartbeats
  // show a silent peer, and the kernel gives up a connection that confirms nothing.
  socket.set(opt::tcp_keepalive, 1);
  socket.set(opt::tcp_keepalive_idle, 10);
  socket.set(opt::tcp_keepalive_intvl, 5);
  socket.set(opt::tcp_keepalive_cnt, 3);
  // Not as soon as a link calls its path silent: a full queue on a narrow path confirms late.
  socket.set(opt::tcp_maxrt, kUnconfirmedMs);
  socket.set(opt::reconnect_ivl, 100);
  socket.set(opt::reconnect_ivl_max, 2000);
  socket.set(opt::handshake_ivl, 4000);
  socket.set(opt::connect_timeout, 3000);
  socket.set(opt::backlog, 16);
  // Enforced by a silent disconnect, so it is only a last defence. The hellos agree on the fragment
  // size.
  socket.set(opt::maxmsgsize, static_cast<int64_t>(kMaxFragmentBytes + 4096));
}

void serve_curve(zmq::socket_t& socket, const CurveKeyPair& keys, const std::string& domain) {
  namespace opt = zmq::sockopt;
  socket.set(opt::curve_server, true);
  socket.set(opt::curve_secretkey, keys.secret_key);
  socket.set(opt::zap_domain, domain);
  // Without a domain and a gate CURVE accepts every peer that knows the public key.
  const int enforce = 1;
  if (zmq_setsockopt(socket.handle(), kZapEnforceDomain, &enforce, sizeof enforce) != 0) {
    throw zmq::error_t();
  }
}

void call_with_curve(zmq::socket_t& socket, const CurveKeyPair& keys,
                     const std::string& server_key) {
  namespace opt = zmq::sockopt;
  socket.set(opt::curve_publickey, keys.public_key);
  socket.set(opt::curve_secretkey, keys.secret_key);
  socket.set(opt::curve_serverkey, server_key);
}

void require_safe_libzmq() {
  const auto [major, minor, patch] = zmq::version();
  require_safe_libzmq(major, minor, patch);
}

void require_safe_libzmq(int major, int minor, int patch) {
  if (std::tuple(major, minor, patch) >= std::tuple(4, 3, 3)) return;
  throw LinkError(LinkError::Kind::unusable,
                  fmt::format("libzmq {}.{}.{} can be taken over from the network before a key is "
                              "shown (CVE-2019-13132, CVE-2020-15166); install 4.3.3 or newer",
                              major, minor, patch));
}

}  // namespace strait::net
