#include "framework/net/bind_socket.h"

#include <fmt/format.h>

#include <algorithm>

namespace strait::net {
namespace {

[[noreturn]] void throw_unbindable(const std::string& words) {
  throw LinkError(LinkError::Kind::unusable, words);
}

[[noreturn]] void throw_all_taken(const BindAddress& address, std::uint16_t last) {
  const auto holder = port_holder(address.first_port);
  const std::string by = holder ? "held by " + *holder : "held by another process";
  if (last == address.first_port) {
    throw_unbindable(fmt::format("port {} on {} is taken, {}; free it or choose another port", last,
                                 address.host, by));
  }
  throw_unbindable(
      fmt::format("all ports {}-{} on {} are taken, {} {}; free one or widen the range",
                  address.first_port, last, address.host, address.first_port, by));
}

}  // namespace

Endpoint bind_socket(zmq::socket_t& socket, const BindAddress& address) {
  if (address.host.empty() || address.host == "*" || address.host == "0.0.0.0" ||
      address.host == "::") {
    throw_unbindable(
        fmt::format("cannot listen on '{}': name the one address that the peers use, so "
                    "that the port is not open to other networks",
                    address.host));
  }
  if (address.last_port != 0 && address.last_port < address.first_port) {
    throw_unbindable(
        fmt::format("ports {}-{} are not a valid range", address.first_port, address.last_port));
  }
  const std::uint16_t last = std::max(address.first_port, address.last_port);
  // One more bit than a port, so that the loop ends when last is 65535.
  for (std::uint32_t port = address.first_port; port <= last; ++port) {
    const Endpoint wanted{address.host, static_cast<std::uint16_t>(port)};
    try {
      socket.bind(wanted.text());
    } catch (const zmq::error_t& error) {
      if (error.num() == EADDRINUSE) continue;
      throw_unbindable(fmt::format("cannot listen on {}: {}; is it an address of this machine?",
                                   wanted.host_and_port(), error.what()));
    }
    // Port 0 lets the system choose; only libzmq knows the result.
    const auto bound = Endpoint::parse(socket.get(zmq::sockopt::last_endpoint));
    if (!bound)
      throw_unbindable(fmt::format("libzmq names no port for {}", wanted.host_and_port()));
    return {address.host, bound->port};
  }
  throw_all_taken(address, last);
}

}  // namespace strait::net
