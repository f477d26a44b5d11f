#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>

#include "launcher/hosts/slurm_commands.h"
#include "launcher/plan/plan.h"

namespace strait::hosts {

// The script that Slurm runs on the first node of a job: #SBATCH lines from the plan, one task per
// node, then `commands`, which are the same for all runs. Pure.
std::string batch_script(const plan::Plan& plan, std::string_view commands);

// For a run whose directory is prepared: sbatch is given the script, the program and the directory.
// exec: the program itself gets the signals that Slurm sends to the script.
inline constexpr std::string_view kRunPrepared =
    "# $1: the program strait, $2: the run's directory.\n"
    "exec \"$1\" run-allocated \"$2\"\n";

// The Slurm job that a run was given to. The run's directory remembers it (<run>/slurm.json) from
// submission until the job itself has ended well; so its absence means that there is none, and its
// presence that the queue must be asked.
//
// Every call runs one of Slurm's commands, with a time limit. UserError: with the command's
// message.
class SlurmJob {
 public:
  // Writes the script and hands it to sbatch. `run` is prepared: it holds its plan, and is seen by
  // the nodes at the same place.
  static SlurmJob submit(const std::filesystem::path& run, const plan::Plan& plan);
  // The one that is remembered, if any.
  static std::optional<SlurmJob> of(const std::filesystem::path& run);
  // Likewise, for the job that this process runs in, submitted without strait.
  static SlurmJob remember(const std::filesystem::path& run, std::int64_t number);
  static void forget(const std::filesystem::path& run);
  // UserError where the run's job still waits or runs, and is not the one that we are in: the
  // directory is not free. The lock of a job that died with its node is taken away.
  static void refuse_live(const std::filesystem::path& run);

  std::int64_t number() const { return number_; }
  // Nothing: the queue knows it no more.
  std::optional<JobState> state() const;
  // Signals the process that coordinates, and no other.
  void signal(const char* name) const;  // "INT"
  void cancel() const;
  void requeue() const;

 private:
  explicit SlurmJob(std::int64_t number) : number_(number) {}
  static void drop_dead_lock(const std::filesystem::path& run);

  std::int64_t number_;
};

}  // namespace strait::hosts
