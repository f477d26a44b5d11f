#include "framework/net/socket_settings.h"

#include <fmt/format.h>
#include <linux/tcp.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include "framework/net/link_error.h"
#include "framework/net/link_protocol.h"
#include "framework/net/wire_format.h"

namespace strait::net {

namespace {

// libzmq has this option since 4.3.0, but its header declares it only for drafts.
constexpr int kZapEnforceDomain = 93;

// Two fragments of the usual least size.
constexpr int kMostUnsent = 64 << 10;

// Well above kSilence; see tcp_maxrt below.
constexpr int kUnconfirmedMs = 20'000;

// It sends at the rate that arrives, so losses that no queue caused do not slow it.
constexpr std::string_view kBbr = "bbr";

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

void apply_link_settings(zmq::socket_t& socket, const std::string& host) {
  namespace opt = zmq::sockopt;
  socket.set(opt::ipv6, host.find(':') != std::string::npos);
  // Only a few fragments in ZeroMQ's queue. The window in bytes is the real bound, and each of our
  // messages waits for what is in this queue.
  socket.set(opt::sndhwm, 4);
  // No limit for receiving: the peer's window bounds what can arrive.
  socket.set(opt::rcvhwm, 0);
  // A closed socket owes nothing, because the window holds what the peer does not have. The code
  // that closes a socket gives a final message its second.
  socket.set(opt::linger, 0);
  socket.set(opt::immediate, false);
  // libzmq's own heartbeats stay off. Version 4.3.4 aborts the process if one falls due on a
  // connection that broke while its data was unread, for example by a closed socket. The link's
  // heartbeats detect a silent peer, and the kernel gives up a connection that acknowledges
  // nothing.
  socket.set(opt::tcp_keepalive, 1);
  socket.set(opt::tcp_keepalive_idle, 10);
  socket.set(opt::tcp_keepalive_intvl, 5);
  socket.set(opt::tcp_keepalive_cnt, 3);
  // Later than kSilence, because a full queue on a narrow path acknowledges late.
  socket.set(opt::tcp_maxrt, kUnconfirmedMs);
  // Short, because a peer starts within seconds; growing, so that a long outage costs little.
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
  // Without a domain and a gate, CURVE accepts every peer that knows the public key.
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

std::uint64_t socket_cookie(int descriptor) {
  std::uint64_t cookie = 0;
  socklen_t size = sizeof cookie;
  if (getsockopt(descriptor, SOL_SOCKET, SO_COOKIE, &cookie, &size) != 0) return 0;
  return cookie;
}

void ConnectionBytes::follow(const zmq::message_t& message, bool several_flows) {
  const int descriptor = zmq_msg_get(message.handle(), ZMQ_SRCFD);
  if (descriptor < 0 || descriptor == descriptor_) return;
  descriptor_ = descriptor;
  constexpr int kSystemDefault = 0;
  const int unsent = several_flows ? kMostUnsent : kSystemDefault;
  setsockopt(descriptor, IPPROTO_TCP, TCP_NOTSENT_LOWAT, &unsent, sizeof unsent);
  std::array<char, 16> control{};
  socklen_t size = control.size() - 1;
  getsockopt(descriptor, IPPROTO_TCP, TCP_CONGESTION, control.data(), &size);
  if (!uses_bbr_) usual_control_ = control.data();
  uses_bbr_ = false;
  cookie_ = socket_cookie(descriptor);
  received_ = received_on(descriptor);
}

bool ConnectionBytes::can_use_bbr() const {
  return !refused_ && !usual_control_.empty() && usual_control_ != kBbr;
}

void ConnectionBytes::use_bbr(bool wanted) {
  if (wanted == uses_bbr_ || descriptor_ < 0) return;
  const std::string_view name = wanted ? kBbr : usual_control_;
  const auto size = static_cast<socklen_t>(name.size());
  refused_ = setsockopt(descriptor_, IPPROTO_TCP, TCP_CONGESTION, name.data(), size) != 0;
  if (!refused_) uses_bbr_ = wanted;
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
