#include "framework/net/endpoint.h"

#include <arpa/inet.h>
#include <fmt/format.h>

#include <array>
#include <charconv>
#include <filesystem>
#include <fstream>
#include <sstream>

namespace strait::net {
namespace {

namespace fs = std::filesystem;

// Only TCP is supported: links cross machines.
constexpr std::string_view kScheme = "tcp://";
constexpr const char* kListening = "0A";  // the st column of /proc/net/tcp: TCP_LISTEN

bool in_network(std::uint32_t address, std::uint32_t network, int bits) {
  return (address ^ network) >> (32 - bits) == 0;
}

// The inode of the socket that listens on this port.
std::optional<std::string> listening_inode(const char* table, std::uint16_t port) {
  std::ifstream lines(table);
  const std::string wanted = fmt::format(":{:04X}", port);
  for (std::string line; std::getline(lines, line);) {
    std::istringstream fields(line);
    std::array<std::string, 10> field;
    for (std::string& value : field) fields >> value;
    const std::string& local = field[1];
    if (local.size() > wanted.size() && local.ends_with(wanted) && field[3] == kListening) {
      return field[9];
    }
  }
  return std::nullopt;
}

bool holds_inode(const fs::path& process, const std::string& inode) {
  std::error_code ignored;  // processes of other users do not show theirs
  const std::string wanted = "socket:[" + inode + "]";
  for (fs::directory_iterator file(process / "fd", ignored), end; !ignored && file != end;
       file.increment(ignored)) {
    if (fs::read_symlink(file->path(), ignored) == wanted) return true;
  }
  return false;
}

}  // namespace

std::optional<Endpoint> Endpoint::parse(std::string_view text) {
  if (!text.starts_with(kScheme)) return std::nullopt;
  text.remove_prefix(kScheme.size());
  // The last colon: an IPv6 address contains others.
  const std::size_t colon = text.rfind(':');
  if (colon == std::string_view::npos || colon == 0) return std::nullopt;
  Endpoint endpoint;
  const char* end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data() + colon + 1, end, endpoint.port);
  if (error != std::errc{} || stop != end) return std::nullopt;
  std::string_view host = text.substr(0, colon);
  if (host.starts_with('[') && host.ends_with(']')) host = host.substr(1, host.size() - 2);
  endpoint.host = host;
  return endpoint;
}

std::string Endpoint::text() const { return std::string(kScheme) + host_and_port(); }

std::string Endpoint::host_and_port() const {
  const bool six = host.find(':') != std::string::npos;
  return six ? fmt::format("[{}]:{}", host, port) : fmt::format("{}:{}", host, port);
}

bool is_loopback_host(const std::string& host) {
  return host == "localhost" || host == "::1" || host.starts_with("127.");
}

bool is_private_host(const std::string& host) {
  if (host == "localhost") return true;
  in_addr four{};
  if (inet_pton(AF_INET, host.c_str(), &four) == 1) {
    const std::uint32_t address = ntohl(four.s_addr);
    return in_network(address, 0x7F000000, 8) || in_network(address, 0x0A000000, 8) ||
           in_network(address, 0xAC100000, 12) || in_network(address, 0xC0A80000, 16) ||
           in_network(address, 0xA9FE0000, 16);
  }
  in6_addr six{};
  if (inet_pton(AF_INET6, host.c_str(), &six) != 1) return false;
  const bool unique_local = (six.s6_addr[0] & 0xFE) == 0xFC;
  return IN6_IS_ADDR_LOOPBACK(&six) || IN6_IS_ADDR_LINKLOCAL(&six) || unique_local;
}

std::optional<std::string> port_holder(std::uint16_t port) {
  std::optional<std::string> inode = listening_inode("/proc/net/tcp", port);
  if (!inode) inode = listening_inode("/proc/net/tcp6", port);
  if (!inode) return std::nullopt;
  std::error_code ignored;
  for (fs::directory_iterator entry("/proc", ignored), end; !ignored && entry != end;
       entry.increment(ignored)) {
    const std::string id = entry->path().filename();
    if (id.find_first_not_of("0123456789") != std::string::npos) continue;
    if (!holds_inode(entry->path(), *inode)) continue;
    std::string program;
    std::getline(std::ifstream(entry->path() / "comm"), program);
    return fmt::format("process {} ({})", id, program);
  }
  return std::nullopt;
}

}  // namespace strait::net
