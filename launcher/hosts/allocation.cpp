#include "launcher/hosts/allocation.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <sstream>

#include "launcher/base/errors.h"
#include "launcher/hosts/slurm_commands.h"

namespace strait::hosts {
namespace {

std::int64_t slurm_number(const Variable& variable, const char* name) {
  const std::string text = variable(name);
  std::int64_t number = 0;
  const char* const end = text.data() + text.size();
  const auto [rest, error] = std::from_chars(text.data(), end, number);
  if (error != std::errc() || rest != end || number < 0) {
    throw base::UserError(
        base::ExitCode::bad_input,
        fmt::format("{} is \"{}\" inside of a Slurm job, but must be a number: start "
                    "strait with the environment that Slurm made",
                    name, text));
  }
  return number;
}

}  // namespace

std::string own_variable(const char* name) {
  const char* const value = std::getenv(name);
  return value == nullptr ? "" : value;
}

std::optional<Allocation> allocation_from(const Variable& variable, std::int64_t pid) {
  if (variable("SLURM_JOB_ID").empty()) return std::nullopt;
  Allocation allocation;
  allocation.job = slurm_number(variable, "SLURM_JOB_ID");
  allocation.nodes = variable("SLURM_JOB_NODELIST");
  if (!variable("SLURM_RESTART_COUNT").empty()) {
    allocation.restarts = slurm_number(variable, "SLURM_RESTART_COUNT");
  }
  // The shell of salloc has no SLURM_TASK_PID.
  allocation.is_script =
      !variable("SLURM_TASK_PID").empty() && slurm_number(variable, "SLURM_TASK_PID") == pid;
  if (allocation.nodes.empty()) {
    throw base::UserError(
        base::ExitCode::bad_input,
        "SLURM_JOB_ID is set, but SLURM_JOB_NODELIST is not: start strait with the "
        "environment that Slurm made");
  }
  return allocation;
}

std::optional<Allocation> own_allocation() { return allocation_from(own_variable, ::getpid()); }

std::vector<NodeAddress> nodes_of(const Allocation& allocation) {
  const std::string doing = "to list the nodes of job " + fmt::format("{}", allocation.job);
  std::istringstream names(
      slurm_output({"scontrol", "show", "hostnames", allocation.nodes}, doing));
  const std::vector<NodeAddress> known = parse_node_addresses(
      slurm_output({"scontrol", "--oneliner", "show", "node", allocation.nodes}, doing));
  std::vector<NodeAddress> nodes;
  for (std::string name; names >> name;) {
    const auto found = std::ranges::find(known, name, &NodeAddress::node);
    if (found == known.end()) {
      throw base::UserError(
          base::ExitCode::bad_input,
          fmt::format("scontrol shows no address for node {} of job {}", name, allocation.job));
    }
    nodes.push_back(*found);
  }
  return nodes;
}

}  // namespace strait::hosts
