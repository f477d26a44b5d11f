#include "framework/net/carrier.h"

#include <fmt/format.h>

#include <atomic>
#include <cstring>

#include "framework/net/wire_format.h"

namespace strait::net {
namespace {

constexpr int kWatchedEvents = ZMQ_EVENT_ACCEPTED | ZMQ_EVENT_HANDSHAKE_SUCCEEDED |
                               ZMQ_EVENT_DISCONNECTED | ZMQ_EVENT_HANDSHAKE_FAILED_AUTH |
                               ZMQ_EVENT_HANDSHAKE_FAILED_PROTOCOL |
                               ZMQ_EVENT_HANDSHAKE_FAILED_NO_DETAIL;

// Never reused: libzmq frees an address some time after its socket was closed.
std::string fresh_address() {
  static std::atomic<std::uint64_t> count{0};
  return "inproc://monitor-" + std::to_string(++count);
}

}  // namespace

std::string routing_id(const ProcessName& process, const std::string& link) {
  // Of a fixed length: a name may have any characters, and libzmq takes 255 bytes.
  const FrameHash hash = hash_frame(std::as_bytes(std::span(link)));
  return fmt::format("{}.{:08x}", process.text(), static_cast<std::uint32_t>(hash.low));
}

Monitor::Monitor(zmq::context_t& context, zmq::socket_t& socket)
    : watched_(socket), events_(context, zmq::socket_type::pair) {
  const std::string address = fresh_address();
  if (zmq_socket_monitor(socket.handle(), address.c_str(), kWatchedEvents) != 0) {
    throw zmq::error_t();
  }
  events_.set(zmq::sockopt::linger, 0);
  events_.connect(address);
}

Monitor::~Monitor() {
  // This fails only if the socket is already closed, and then there is nothing to stop.
  zmq_socket_monitor(watched_.handle(), nullptr, 0);
}

std::optional<Monitor::Event> Monitor::next() {
  for (zmq::message_t event; events_.recv(event, zmq::recv_flags::dontwait);) {
    zmq::message_t address;  // not used, but part of the same message
    if (!events_.recv(address, zmq::recv_flags::dontwait)) return std::nullopt;
    std::uint16_t number = 0;
    std::int32_t value = 0;
    if (event.size() < sizeof number + sizeof value) continue;
    // The layout of libzmq's event frame: a 16-bit event, then a 32-bit value, unaligned.
    std::memcpy(&number, event.data(), sizeof number);
    std::memcpy(&value, event.data<std::byte>() + sizeof number, sizeof value);
    descriptor_ = value;
    switch (number) {
      case ZMQ_EVENT_ACCEPTED:
        return Event::accepted;
      case ZMQ_EVENT_HANDSHAKE_SUCCEEDED:
        return Event::up;
      case ZMQ_EVENT_DISCONNECTED:
        return Event::down;
      case ZMQ_EVENT_HANDSHAKE_FAILED_AUTH:
        return Event::authentication_failed;
      case ZMQ_EVENT_HANDSHAKE_FAILED_PROTOCOL:
        return Event::protocol_mismatch;
      case ZMQ_EVENT_HANDSHAKE_FAILED_NO_DETAIL:
        return Event::handshake_failed;
      default:
        continue;
    }
  }
  return std::nullopt;
}

}  // namespace strait::net
