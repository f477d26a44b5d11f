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

// The Slurm job of a run. The run's directory records it (<run>/slurm.json) from its submission
// until the job has ended without an error. Without the record there is no job; with it, only the
// queue knows whether the job still exists.
//
// Every call runs one of Slurm's commands, with a time limit. UserError: with the command's
// message.
class SlurmJob {
 public:
  // Writes the script and passes it to sbatch. `run` is prepared: it has its plan, and the nodes
  // see it at the same path.
  static SlurmJob submit(const std::filesystem::path& run, const plan::Plan& plan);
  // The recorded job, if any.
  static std::optional<SlurmJob> of(const std::filesystem::path& run);
  // Records the job that this process runs in, which was submitted without strait.
  static SlurmJob remember(const std::filesystem::path& run, std::int64_t number);
  static void forget(const std::filesystem::path& run);
  // UserError: another job of this run is waiting or running, so the directory is in use. Clears
  // the lock of a job that died with its node.
  static void refuse_live(const std::filesystem::path& run);

  std::int64_t number() const { return number_; }
  // nullopt: the job is not in the queue any more.
  std::optional<JobState> state() const;
  // Signals only the coordinator.
  void signal(const char* name) const;  // "INT"
  void cancel() const;
  void requeue() const;

 private:
  explicit SlurmJob(std::int64_t number) : number_(number) {}
  static void drop_dead_lock(const std::filesystem::path& run);

  std::int64_t number_;
};

}  // namespace strait::hosts
