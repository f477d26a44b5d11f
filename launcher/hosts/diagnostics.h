#pragma once

#include "launcher/base/errors.h"
#include "launcher/hosts/host_inspection.h"
#include "launcher/recipe/plan.h"

// The checks of `strait doctor`, a result for each.
namespace strait::hosts {

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
