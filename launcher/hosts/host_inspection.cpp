#include "launcher/hosts/host_inspection.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <cerrno>
#include <fstream>

#include "framework/fields/bounded_json.h"
#include "framework/fields/json_fields.h"
#include "framework/file_descriptor.h"
#include "launcher/base/machine.h"
#include "launcher/base/text.h"
#include "launcher/hosts/agent_job.h"
#include "launcher/hosts/ssh_session.h"
#include "launcher/recipe/run_files.h"

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

namespace {

using Clock = std::chrono::steady_clock;
using ResultKind = CheckResult::Kind;

// For all hosts at the same time: the login, then the inspection.
constexpr auto kDoctorCallLimit = std::chrono::seconds(25);
constexpr auto kInspectionLimit = std::chrono::seconds(15);

CheckResult wrong(base::ExitCode code, const std::string& where, std::string text) {
  return {ResultKind::wrong, code, where, std::move(text)};
}

InspectionRequest inspection_request_for(const recipe::RecipeHost& host,
                                         std::pair<int, int> ports) {
  return {host.directory.empty() ? recipe::kHostDirectory : host.directory, ports};
}

// Inspects a host over ssh. Reports a failure as a finding.
std::vector<CheckResult> inspect_over_ssh(SshSession& call, const recipe::RecipeHost& host,
                                          const HostNeed& need, const recipe::Recipe& recipe,
                                          Clock::time_point deadline) {
  try {
    call.launcher_address(deadline);  // the build, and whether it can find us
    const std::string line = call.send_request(
        to_text(inspection_request_for(host, recipe.hosts.ports)),
        [](const std::string& text) { return inspection_from(text).has_value(); },
        Clock::now() + kInspectionLimit);
    return diagnose_host(host, need, *inspection_from(line), recipe.hosts.ports,
                         base::unix_seconds());
  } catch (const std::exception& error) {  // of any kind: the failure is the finding
    const base::Failure failure = base::describe_failure(error);
    return {wrong(failure.code, host.name, failure.text)};
  }
}

std::vector<CheckResult> check_ssh_hosts(const recipe::Recipe& recipe,
                                         const std::vector<HostNeed>& needs) {
  std::vector<recipe::RecipeHost> hosts = recipe.hosts.list;
  std::ranges::copy(recipe.hosts.spare, std::back_inserter(hosts));
  // All sessions are opened before any is waited for, so that the logins overlap.
  std::vector<std::unique_ptr<SshSession>> calls;
  try {
    for (const recipe::RecipeHost& host : hosts) {
      calls.push_back(std::make_unique<SshSession>(
          SshTarget{host.name, recipe.hosts.ssh_config, recipe.hosts.address}));
    }
  } catch (const base::UserError& error) {
    return {wrong(error.code(), "ssh", error.what())};
  }
  const auto deadline = Clock::now() + kDoctorCallLimit;
  HostNeed spare;
  // Of a spare host only this is known: which stages it gets depends on the host that is lost.
  spare.threads = recipe.pipeline.threads.value_or(0);
  std::vector<std::vector<CheckResult>> found(hosts.size());
  const auto errors = for_each_host(hosts.size(), [&](std::size_t i) {
    const HostNeed need = i < needs.size() ? needs[i] : spare;
    found[i] = inspect_over_ssh(*calls[i], hosts[i], need, recipe, deadline);
  });
  for (const std::exception_ptr& error : errors) {
    if (error) std::rethrow_exception(error);
  }
  std::vector<CheckResult> results;
  for (const auto& of_host : found) {
    results.insert(results.end(), of_host.begin(), of_host.end());
  }
  return results;
}

void diagnose_ports(const recipe::RecipeHost& listed, const HostNeed& need,
                    const HostInspection& inspection, std::pair<int, int> ports,
                    std::vector<CheckResult>& results) {
  if (ports.first == 0) return;
  const int all = ports.second - ports.first + 1;
  const int left = all - static_cast<int>(inspection.busy_ports.size());
  if (left < need.ports) {
    results.push_back(
        wrong(base::ExitCode::bad_input, listed.name,
              fmt::format("of its ports {}-{} only {} are free, but {} are needed; end the "
                          "programs that listen there, or name others: hosts.ports",
                          ports.first, ports.second, left, need.ports)));
  } else if (!inspection.busy_ports.empty()) {
    results.push_back(
        {ResultKind::note, base::ExitCode::done, listed.name,
         fmt::format("{} of its ports {}-{} are taken; {} are left, {} are needed",
                     inspection.busy_ports.size(), ports.first, ports.second, left, need.ports)});
  }
}

}  // namespace

std::vector<HostNeed> needs_of(const plan::Plan& plan) {
  std::vector<HostNeed> needs(plan.hosts.size());
  const std::vector<std::int64_t> ports = plan::link_ports(plan);
  for (const plan::Plan::Process& process : plan.processes) {
    HostNeed& need = needs.at(process.host_index);
    ++need.processes;
    // One more than checkpoint.keep: the newest is written before the oldest is removed.
    need.disk += process.saved_bytes * (plan.recipe.checkpoint.keep + 1);
  }
  for (std::size_t i = 0; i < needs.size(); ++i) {
    needs[i].memory = plan::host_memory_needed(plan, i) + plan::held_bytes(plan, i);
    needs[i].ports = ports[i];
    needs[i].threads = plan.recipe.pipeline.threads.value_or(0);
  }
  return needs;
}

std::vector<CheckResult> diagnose_host(const recipe::RecipeHost& listed, const HostNeed& need,
                                       const HostInspection& inspection, std::pair<int, int> ports,
                                       std::int64_t now) {
  std::vector<CheckResult> results;
  const HostFacts& facts = inspection.facts;
  if (!inspection.objection.empty()) {
    results.push_back(
        wrong(inspection.objection_code, listed.name, base::printable(inspection.objection)));
  }
  // The recipe may lower what a run takes, but not promise what the host does not have.
  const std::int64_t memory = std::min(facts.memory, listed.memory.value_or(facts.memory));
  if (memory < need.memory) {
    results.push_back(
        wrong(base::ExitCode::out_of_memory, listed.name,
              fmt::format("its {} {} need {} of memory, but {} {}; give it fewer stages, or make "
                          "train.micro_batch smaller",
                          need.processes, need.processes == 1 ? "process" : "processes",
                          base::byte_text(need.memory),
                          memory < facts.memory ? "the recipe lets it take" : "it has",
                          base::byte_text(memory))));
  }
  if (facts.cores < need.threads) {
    results.push_back(wrong(
        base::ExitCode::bad_input, listed.name,
        fmt::format("pipeline.threads is {}, but it has {} {}; set it to {}{}, or to \"auto\"",
                    need.threads, facts.cores, facts.cores == 1 ? "core" : "cores", facts.cores,
                    facts.cores == 1 ? "" : " or fewer")));
  }
  if (inspection.objection.empty() && facts.free_disk < need.disk) {
    results.push_back(wrong(
        base::ExitCode::storage_full, listed.name,
        fmt::format(
            "its checkpoints take {}, but {} has {} free; make room, lower checkpoint.keep, or {}",
            base::byte_text(need.disk), base::printable(facts.directory),
            base::byte_text(facts.free_disk), inspection.advice)));
  }
  diagnose_ports(listed, need, inspection, ports, results);
  if (std::string late = clock_warning(listed.name, facts.clock, now); !late.empty()) {
    results.push_back({ResultKind::note, base::ExitCode::done, listed.name, std::move(late)});
  }
  for (const auto& [works, text] : inspection.devices) {
    results.push_back({works ? ResultKind::ok : ResultKind::wrong,
                       works ? base::ExitCode::done : base::ExitCode::internal, listed.name,
                       base::printable(text)});
  }
  const bool has_problem = std::ranges::any_of(
      results, [](const CheckResult& result) { return result.kind == ResultKind::wrong; });
  if (!has_problem) {
    results.insert(results.begin(),
                   {ResultKind::ok, base::ExitCode::done, listed.name,
                    fmt::format("{} cores, {} of memory ({} needed), {} of disk free ({} needed)",
                                facts.cores, base::byte_text(memory), base::byte_text(need.memory),
                                base::byte_text(facts.free_disk), base::byte_text(need.disk))});
  }
  return results;
}

std::vector<CheckResult> check_hosts(const recipe::Recipe& recipe,
                                     const std::vector<HostNeed>& needs) {
  switch (recipe.hosts.backend) {
    case recipe::BackendKind::ssh:
      return check_ssh_hosts(recipe, needs);
    case recipe::BackendKind::local: {
      const recipe::RecipeHost here{.name = "this machine",
                                    .directory = std::filesystem::current_path().string()};
      const InspectionRequest request = inspection_request_for(here, recipe.hosts.ports);
      return diagnose_host(here, needs.empty() ? HostNeed{} : needs[0],
                           inspect_this_host(request, kStartElsewhere), recipe.hosts.ports,
                           base::unix_seconds());
    }
    case recipe::BackendKind::join:
      try {
        return {{ResultKind::ok, base::ExitCode::done, "this machine",
                 fmt::format("joining hosts are told its address {}",
                             address_for_joining(recipe.hosts.address, own_addresses()))},
                {ResultKind::note, base::ExitCode::done, "hosts",
                 "they connect by themselves, so they cannot be checked from here"}};
      } catch (const base::UserError& error) {
        return {wrong(error.code(), "this machine", error.what())};
      }
  }
  return {};
}

}  // namespace strait::hosts
