#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "launcher/base/piped_process.h"

namespace strait::hosts {

// State of a job in Slurm's queue.
struct JobState {
  std::string state;    // as Slurm prints it: "PENDING", "RUNNING", …
  std::string reason;   // why it waits: "Resources", "Priority"; empty: none
  std::string nodes;    // "n[0-3]"; empty while it has none
  std::string elapsed;  // of the time that it runs: "3:21"
  std::string limit;    // "1-00:00:00" or "UNLIMITED"
  std::int64_t restarts = 0;

  bool is_pending() const;  // not started yet, or requeued
  bool is_active() const;   // pending, running or ending
  // "pending (Resources)", "running on n[0-3] for 3:21 of 10:00, requeued once"
  std::string sentence() const;
};

// The arguments of `squeue --noheader` for which parse_job_state reads the output.
std::vector<std::string> job_state_format();

// Empty if the job is no longer in the queue. UserError: not the output of squeue.
std::optional<JobState> parse_job_state(std::string_view answer);

// The job number in the output of `sbatch --parsable`: "123" or "123;cluster". UserError: it has no
// number.
std::int64_t parse_job_number(std::string_view answer);

// The address of each node in the output of `scontrol show node --oneliner`, in the order of lines.
struct NodeAddress {
  std::string node;
  std::string address;
  bool operator==(const NodeAddress&) const = default;
};
std::vector<NodeAddress> parse_node_addresses(std::string_view answer);

// Runs one of Slurm's commands. UserError (stalled): the controller has not replied within a
// minute.
base::ProgramResult run_slurm(const std::vector<std::string>& argv);

// Runs a command and returns its output. UserError: it failed; the message has Slurm's error and
// what Slurm refused (`doing`, such as "to cancel job 12").
std::string slurm_output(const std::vector<std::string>& argv, const std::string& doing);

}  // namespace strait::hosts
