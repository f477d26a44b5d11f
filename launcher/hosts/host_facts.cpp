#include "launcher/hosts/host_facts.h"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <sys/socket.h>

#include <algorithm>
#include <system_error>

#include "framework/file_descriptor.h"
#include "framework/net/endpoint.h"
#include "launcher/base/machine.h"
#include "launcher/base/nvidia_driver.h"
#include "launcher/base/own_program.h"
#include "launcher/base/process_identity.h"

namespace strait::hosts {
namespace {

std::string numeric_address(const sockaddr* address, socklen_t size) {
  std::array<char, NI_MAXHOST> text{};
  const int failed =
      ::getnameinfo(address, size, text.data(), text.size(), nullptr, 0, NI_NUMERICHOST);
  return failed != 0 ? "" : text.data();
}

socklen_t size_of(const sockaddr* address) {
  return address->sa_family == AF_INET ? sizeof(sockaddr_in) : sizeof(sockaddr_in6);
}

// libtorch draws random values and updates weights by other instructions on each of these.
std::string processor() {
#if defined(__x86_64__)
  const bool wide = __builtin_cpu_supports("avx2") != 0 && __builtin_cpu_supports("fma") != 0;
  return wide ? "x86-64 with AVX2" : "x86-64 without AVX2";
#elif defined(__aarch64__)
  return "aarch64";
#else
  return "";
#endif
}

}  // namespace

std::string own_address_towards(const std::string& address) {
  addrinfo hints{};
  hints.ai_family = AF_UNSPEC;
  hints.ai_socktype = SOCK_DGRAM;
  addrinfo* found = nullptr;
  if (::getaddrinfo(address.c_str(), "9", &hints, &found) != 0) return "";
  const std::unique_ptr<addrinfo, decltype(&::freeaddrinfo)> all(found, ::freeaddrinfo);
  for (const addrinfo* one = found; one != nullptr; one = one->ai_next) {
    // Connecting a datagram socket asks for a route and sends nothing.
    const FileDescriptor probe(::socket(one->ai_family, SOCK_DGRAM | SOCK_CLOEXEC, 0));
    if (!probe.open() || ::connect(probe.number(), one->ai_addr, one->ai_addrlen) != 0) continue;
    sockaddr_storage own{};
    socklen_t size = sizeof own;
    auto* const name = static_cast<sockaddr*>(static_cast<void*>(&own));
    if (::getsockname(probe.number(), name, &size) == 0) return numeric_address(name, size);
  }
  return "";
}

std::vector<std::string> addresses_of(const std::string& name) {
  addrinfo hints{};
  hints.ai_family = AF_UNSPEC;
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  if (::getaddrinfo(name.c_str(), nullptr, &hints, &found) != 0) return {};
  const std::unique_ptr<addrinfo, decltype(&::freeaddrinfo)> all(found, ::freeaddrinfo);
  std::vector<std::string> addresses;
  for (const addrinfo* one = found; one != nullptr; one = one->ai_next) {
    const std::string text = numeric_address(one->ai_addr, one->ai_addrlen);
    if (!text.empty()) addresses.push_back(text);
  }
  return addresses;
}

bool is_loopback(const std::string& address) {
  return address.starts_with("127.") || address == "::1";
}

bool is_own(const std::string& address, const std::vector<std::string>& own) {
  return is_loopback(address) || std::ranges::find(own, address) != own.end();
}

std::string interface_of(const std::string& address) {
  ifaddrs* found = nullptr;
  if (::getifaddrs(&found) != 0) return {};
  const std::unique_ptr<ifaddrs, decltype(&::freeifaddrs)> all(found, ::freeifaddrs);
  for (const ifaddrs* one = found; one != nullptr; one = one->ifa_next) {
    const int family = one->ifa_addr != nullptr ? one->ifa_addr->sa_family : AF_UNSPEC;
    if (family != AF_INET && family != AF_INET6) continue;
    if (numeric_address(one->ifa_addr, size_of(one->ifa_addr)) == address) return one->ifa_name;
  }
  return {};
}

std::vector<std::string> own_addresses() {
  ifaddrs* found = nullptr;
  if (::getifaddrs(&found) != 0) return {};
  const std::unique_ptr<ifaddrs, decltype(&::freeifaddrs)> all(found, ::freeifaddrs);
  std::vector<std::string> addresses;
  for (const ifaddrs* one = found; one != nullptr; one = one->ifa_next) {
    const bool up = (one->ifa_flags & IFF_UP) != 0 && (one->ifa_flags & IFF_LOOPBACK) == 0;
    if (!up || one->ifa_addr == nullptr) continue;
    const int family = one->ifa_addr->sa_family;
    if (family != AF_INET && family != AF_INET6) continue;
    const std::string text = numeric_address(one->ifa_addr, size_of(one->ifa_addr));
    // Link-local addresses are not routed, and those of IPv6 need the name of an interface, which
    // differs from host to host.
    if (text.empty() || text.starts_with("fe80:") || text.starts_with("169.254.")) continue;
    addresses.push_back(text);
  }
  std::stable_partition(addresses.begin(), addresses.end(),
                        [](const std::string& text) { return text.find(':') == text.npos; });
  return addresses;
}

HostFacts facts_of_this_host(const std::filesystem::path& directory, const std::string& towards) {
  HostFacts facts;
  facts.host_name = base::own_host();
  facts.build = base::build_id();
  facts.cores = base::usable_cores();
  facts.processor = processor();
  facts.memory = base::host_memory().total;
  facts.gpus = base::gpu_memory_here();
  std::error_code unknown;
  const auto space = std::filesystem::space(directory, unknown);
  // Zero and not an error: whether the directory can be used is checked elsewhere, with a better
  // message.
  facts.free_disk = unknown ? 0 : static_cast<std::int64_t>(space.available);
  facts.clock = base::unix_seconds();
  facts.directory = directory.string();
  facts.addresses = own_addresses();
  const std::optional<net::Endpoint> endpoint = net::Endpoint::parse(towards);
  facts.launcher = endpoint ? endpoint->host : towards;
  facts.address = own_address_towards(facts.launcher);
  return facts;
}

}  // namespace strait::hosts
