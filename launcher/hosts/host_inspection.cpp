#include "launcher/hosts/host_inspection.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <fstream>
#include <system_error>

#include "framework/fields/bounded_json.h"
#include "framework/fields/json_fields.h"
#include "framework/file_descriptor.h"
#include "launcher/base/text.h"
#include "launcher/hosts/agent_job.h"
#include "launcher/hosts/host_facts_fields.h"

namespace strait::hosts {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kInspectionMarker = "strait-host-look ";
// Below this not even logs and a small model's weights have room.
constexpr std::uintmax_t kLeastDisk = 32 << 20;

// Whether a process listens there. SO_REUSEADDR: sockets in TIME_WAIT do not count.
bool port_is_taken(int family, int port) {
  const FileDescriptor probe(::socket(family, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (!probe.open()) return false;  // this host does not support this address family
  const int on = 1;
  ::setsockopt(probe.number(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  if (family == AF_INET6) {
    // Otherwise the socket would take the IPv4 port as well, and a listener there would count
    // twice.
    ::setsockopt(probe.number(), IPPROTO_IPV6, IPV6_V6ONLY, &on, sizeof on);
  }
  sockaddr_in6 address{};  // the port is at the same place in both kinds; the rest is "any"
  address.sin6_family = static_cast<sa_family_t>(family);
  address.sin6_port = htons(static_cast<std::uint16_t>(port));
  const socklen_t size = family == AF_INET6 ? sizeof(sockaddr_in6) : sizeof(sockaddr_in);
  const auto* const name = static_cast<const sockaddr*>(static_cast<const void*>(&address));
  const bool bound = ::bind(probe.number(), name, size) == 0 && ::listen(probe.number(), 1) == 0;
  // Other errors (no permission for a low port) are not a listener.
  return !bound && errno == EADDRINUSE;
}

std::string unusable_directory(const fs::path& directory, const std::string& why,
                               const char* advice) {
  return fmt::format("cannot keep files in {}: {}; {}", directory.string(), why, advice);
}

}  // namespace

void describe(auto& f, fields::Is<InspectionRequest> auto& m) {
  f("directory", m.directory), f("ports", m.ports);
}

std::string to_text(const InspectionRequest& request) {
  return nlohmann::json{{"look", fields::to_object(request)}}.dump();
}

std::optional<InspectionRequest> inspection_request_from(const std::string& text) {
  try {
    const nlohmann::json from = fields::parse_bounded_json(text);
    // Jobs and inspections come over the same stdin, and only this key tells them apart.
    if (!from.is_object() || !from.contains("look")) return std::nullopt;
    if (!from.at("look").is_object()) return std::nullopt;
    return fields::from_object<InspectionRequest>(from.at("look"), "request");
  } catch (const fields::JsonError&) {
    return std::nullopt;  // not an inspection: the parser of jobs reports errors
  } catch (const base::MessageError&) {
    return std::nullopt;
  }
}

void describe(auto& f, fields::Is<HostInspection> auto& m) {
  describe(f, m.facts);
  f("busy_ports", m.busy_ports), f("devices", m.devices);
  f("objection", m.objection), f("objection_code", m.objection_code);
}

std::string to_line(const HostInspection& inspection) {
  return marked_line(kInspectionMarker, fields::to_object(inspection));
}

std::optional<HostInspection> inspection_from(const std::string& line) {
  const std::optional<nlohmann::json> fields = json_after(kInspectionMarker, line);
  if (!fields || !fields->is_object()) return std::nullopt;
  try {
    // Strict: a host is asked only if it has this build.
    return fields::from_object<HostInspection>(*fields, "host inspection");
  } catch (const base::MessageError&) {
    return std::nullopt;
  }
}

HostInspection inspect_this_host(const InspectionRequest& request, const char* advice) {
  HostInspection inspection;
  inspection.advice = advice;
  const fs::path directory = agent_directory(request.directory);
  try {
    check_host_directory(directory, advice);
  } catch (const base::UserError& error) {
    inspection.objection = error.what();
    inspection.objection_code = error.code();
  }
  inspection.facts = facts_of_this_host(directory, "");
  for (int port = request.ports.first; port != 0 && port <= request.ports.second; ++port) {
    if (port_is_taken(AF_INET, port) || port_is_taken(AF_INET6, port)) {
      inspection.busy_ports.push_back(port);
    }
  }
  return inspection;
}

void check_host_directory(const fs::path& directory, const char* advice) {
  std::error_code failed;
  fs::create_directories(directory, failed);
  if (failed)
    throw base::UserError(base::ExitCode::storage_io,
                          unusable_directory(directory, failed.message(), advice));
  // Written and not only asked for: access(2) says yes on full disks, read-only mounts and over
  // quotas.
  const fs::path probe = directory / fmt::format("probe.{}", ::getpid());
  {
    std::ofstream out(probe);
    out << "can be written\n";
    out.close();
    if (out.fail()) failed = std::error_code(errno, std::generic_category());
  }
  std::error_code ignored;
  fs::remove(probe, ignored);
  const fs::space_info space = fs::space(directory, ignored);
  const bool full = failed == std::errc::no_space_on_device || failed.value() == EDQUOT ||
                    (!ignored && space.available < kLeastDisk);
  if (full) {
    throw base::UserError(
        base::ExitCode::storage_full,
        unusable_directory(directory,
                           fmt::format("its disk is full, {} are free and {} the "
                                       "least that a run needs",
                                       base::byte_text(ignored ? 0 : space.available),
                                       base::byte_text(kLeastDisk)),
                           advice));
  }
  if (failed)
    throw base::UserError(base::ExitCode::storage_io,
                          unusable_directory(directory, failed.message(), advice));
}

}  // namespace strait::hosts
