#include "launcher/hosts/slurm_job.h"

#include <fmt/format.h>

#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "framework/store/atomic_file.h"
#include "framework/store/bounded_json.h"
#include "launcher/control/run_lock.h"
#include "launcher/hosts/allocation.h"
#include "launcher/hosts/ask_slurm.h"
#include "launcher/hosts/batch_script.h"
#include "launcher/base/user_error.h"

namespace strait::hosts {
namespace {

namespace fs = std::filesystem;

fs::path job_record(const fs::path& run) { return run / "slurm.json"; }
fs::path job_script(const fs::path& run) { return run / "slurm.sh"; }

}  // namespace

SlurmJob SlurmJob::submit(const fs::path& run, const plan::Plan& plan) {
  store::replace_file(job_script(run), batch_script(plan, kRunPrepared));
  // The job finds the recipe's paths where they were meant; its output's name may hold no blanks or
  // % of a longer path, so it is relative to there.
  const std::vector<std::string> argv = {"sbatch",
                                         "--parsable",
                                         "--chdir=" + fs::current_path().string(),
                                         "--output=" + (run / "slurm.log").string(),
                                         job_script(run).string(),
                                         fs::read_symlink("/proc/self/exe").string(),
                                         run.string()};
  return remember(run,
                  parse_job_number(ask_slurm(argv, fmt::format("the job of {}", run.string()))));
}

std::optional<SlurmJob> SlurmJob::of(const fs::path& run) {
  const fs::path file = job_record(run);
  std::ifstream in(file);
  if (!in) return std::nullopt;
  const std::string text((std::istreambuf_iterator<char>(in)), std::istreambuf_iterator<char>());
  const auto refuse_record = [&](const char* what) -> base::UserError {
    return {base::ExitCode::corrupt,
            fmt::format("{} is damaged: {}; remove it if the run's Slurm job is gone",
                        file.string(), what)};
  };
  try {
    return SlurmJob(store::parse_bounded_json(text).at("job").get<std::int64_t>());
  } catch (const store::JsonError& error) {
    throw refuse_record(error.what());
  } catch (const nlohmann::json::exception& error) {
    throw refuse_record(error.what());
  }
}

SlurmJob SlurmJob::remember(const fs::path& run, std::int64_t number) {
  store::replace_file(job_record(run), nlohmann::json{{"job", number}}.dump() + "\n");
  return SlurmJob(number);
}

void SlurmJob::forget(const fs::path& run) { fs::remove(job_record(run)); }

void SlurmJob::drop_dead_lock(const fs::path& run) {
  const std::optional<control::LiveRun> holder = control::RunLock::holder(run);
  if (!holder || holder->here() || holder->job.empty()) return;
  const std::optional<JobState> state = SlurmJob(parse_job_number(holder->job)).state();
  if (!state || !state->lives()) fs::remove(run / "lock");
}

void SlurmJob::refuse_live(const fs::path& run) {
  drop_dead_lock(run);
  const std::optional<SlurmJob> job = of(run);
  const std::optional<Allocation> ours = own_allocation();
  if (!job || (ours && ours->job == job->number_)) return;
  const std::optional<JobState> state = job->state();
  if (!state || !state->lives()) return;
  throw base::UserError(
      base::ExitCode::bad_input,
      fmt::format("{} belongs to Slurm job {}, {}; watch it with: strait status {}, end "
                  "it with: strait stop {}",
                  run.string(), job->number_, state->sentence(), run.string(), run.string()));
}

std::optional<JobState> SlurmJob::state() const {
  std::vector<std::string> argv = {"squeue", fmt::format("--jobs={}", number_)};
  for (std::string& word : job_state_format()) argv.push_back(std::move(word));
  const process::ProgramAnswer answer = call_slurm(argv);
  if (answer.succeeded()) return parse_job_state(answer.out);
  // That is how it says that the job has ended some minutes ago.
  if (answer.err.find("Invalid job id") != std::string::npos) return std::nullopt;
  throw base::UserError(base::ExitCode::bad_input, fmt::format("squeue cannot tell the state of job {}: {}",
                                                   number_, answer.complaint()));
}

void SlurmJob::signal(const char* name) const {
  ask_slurm({"scancel", "--batch", fmt::format("--signal={}", name), fmt::format("{}", number_)},
            fmt::format("signal {} to job {}", name, number_));
}

void SlurmJob::cancel() const {
  ask_slurm({"scancel", fmt::format("{}", number_)}, fmt::format("to cancel job {}", number_));
}

void SlurmJob::requeue() const {
  ask_slurm({"scontrol", "requeue", fmt::format("{}", number_)},
            fmt::format("to requeue job {}", number_));
}

}  // namespace strait::hosts
