#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace strait::net {

// "tcp://10.0.0.1:4711", "tcp://[fe80::1]:4711".
struct Endpoint {
  std::string host;  // without brackets
  std::uint16_t port = 0;

  static std::optional<Endpoint> parse(std::string_view text);
  std::string text() const;           // with the scheme
  std::string host_and_port() const;  // without, for sentences
};

// Loopback, link-local or a private range (RFC 1918, RFC 4193). A host name other than localhost
// is not: what it will resolve to is unknown here.
bool is_private_host(const std::string& host);

bool is_loopback_host(const std::string& host);

// The process that listens on a local TCP port, as far as /proc shows: "process 4711 (nginx)".
std::optional<std::string> port_holder(std::uint16_t port);

}  // namespace strait::net
