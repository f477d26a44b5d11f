#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "launcher/hosts/slurm_commands.h"

namespace strait::hosts {

// The Slurm job that a process runs in, from its environment.
struct Allocation {
  std::int64_t job = 0;
  std::int64_t restarts = 0;  // how often the job was requeued
  bool is_script = false;     // this process is the job's script: the job's signals reach it
  std::string nodes;          // "n[0-3]"
};

// Reads a variable of the environment; empty: it is not set.
using Variable = std::function<std::string(const char* name)>;
// The environment of this process.
std::string own_variable(const char* name);

// The job in the variables, for a process with this pid; nullopt: not in a job. Pure.
// UserError: the variables are not as Slurm sets them.
std::optional<Allocation> allocation_from(const Variable& variable, std::int64_t pid);
// The job that this process is in.
std::optional<Allocation> own_allocation();

// The nodes of the job in the order of their task numbers, with the addresses at which Slurm itself
// reaches them. Runs scontrol.
std::vector<NodeAddress> nodes_of(const Allocation& allocation);

}  // namespace strait::hosts
