#pragma once

#include "launcher/base/errors.h"
#include "launcher/hosts/host_facts.h"
#include "launcher/recipe/plan.h"

// `strait doctor`: what it asks a host, where it starts no agent, and its checks, a result for
// each.
namespace strait::hosts {

// Advice about a directory that cannot be used: for a host in the recipe's list, and for a run on
// this machine, which has no list.
inline constexpr const char* kListAnother =
    "name another place under [[hosts.list]]: directory = \"...\"";
inline constexpr const char* kStartElsewhere =
    "start strait in a directory with room that can be written to";

struct InspectionRequest {
  std::string directory;            // for its files; "~" is its home
  std::pair<int, int> ports{0, 0};  // that a run would bind; 0: any
};

struct HostInspection {
  HostFacts facts;
  std::vector<int> busy_ports;  // of the ports in the request
  // The devices for stages: whether each works, and a sentence about it.
  std::vector<std::pair<bool, std::string>> devices;
  std::string objection;  // why it cannot keep files there; empty: it can
  base::ExitCode objection_code = base::ExitCode::done;
  const char* advice = kListAnother;  // if its disk has too little room; not sent
};

std::string to_text(const InspectionRequest& request);
// nullopt: another request.
std::optional<InspectionRequest> inspection_request_from(const std::string& text);

std::string to_line(const HostInspection& inspection);
std::optional<HostInspection> inspection_from(const std::string& line);

// Runs on the host. Creates the directory and nothing else.
HostInspection inspect_this_host(const InspectionRequest& request,
                                 const char* advice = kListAnother);

// Creates the directory. UserError: it cannot be created or written to, or the disk is full.
void check_host_directory(const std::filesystem::path& directory,
                          const char* advice = kListAnother);

struct CheckResult {
  enum class Kind { ok, note, wrong };
  Kind kind = Kind::ok;
  base::ExitCode code = base::ExitCode::done;  // if it is wrong
  std::string where;                           // "recipe", a host
  std::string text;
};

// The resources that the processes of a plan need on one host.
struct HostNeed {
  std::size_t processes = 0;
  std::int64_t memory = 0;   // bytes
  std::int64_t disk = 0;     // bytes of its checkpoints
  std::int64_t ports = 0;    // that links to these processes are bound to
  std::int64_t threads = 0;  // of each process, by the recipe; 0: it gives no number
};

std::vector<HostNeed> needs_of(const plan::Plan& plan);  // by host

// Compares one host with its needs. `now` is this machine's clock. Pure.
std::vector<CheckResult> diagnose_host(const recipe::RecipeHost& listed, const HostNeed& need,
                                       const HostInspection& inspection, std::pair<int, int> ports,
                                       std::int64_t now);

// Inspects all hosts of a recipe at the same time over ssh; for "local", this machine. Hosts of
// "slurm" and "join" cannot be inspected. Takes half a minute at most.
std::vector<CheckResult> check_hosts(const recipe::Recipe& recipe,
                                     const std::vector<HostNeed>& needs);

}  // namespace strait::hosts
