#include "launcher/hosts/slurm_job.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "framework/fields/bounded_json.h"
#include "framework/store/atomic_file.h"
#include "framework/store/input_file.h"
#include "framework/store/step_folders.h"
#include "launcher/base/command_name.h"
#include "launcher/base/errors.h"
#include "launcher/base/own_program.h"
#include "launcher/base/run_file_names.h"
#include "launcher/base/run_lock.h"
#include "launcher/base/text.h"
#include "launcher/hosts/allocation.h"
#include "launcher/hosts/slurm_commands.h"

namespace strait::hosts {
namespace {

namespace fs = std::filesystem;

constexpr std::uint64_t kMostRecordBytes = std::uint64_t{1} << 20;

std::int64_t most_on_a_node(const plan::Plan& plan) {
  std::vector<std::int64_t> taken(plan.hosts.size());
  for (const plan::Plan::Process& process : plan.processes) ++taken.at(process.host_index);
  return *std::ranges::max_element(taken);
}

std::vector<std::string> sbatch_options(const plan::Plan& plan) {
  const recipe::Recipe& recipe = plan.recipe;
  const recipe::SlurmSettings& slurm = recipe.hosts.slurm;
  std::vector<std::string> options = {"--job-name=" + recipe.name,
                                      fmt::format("--nodes={}", plan.hosts.size()),
                                      "--ntasks-per-node=1"};
  if (recipe.pipeline.threads) {
    options.push_back(
        fmt::format("--cpus-per-task={}", *recipe.pipeline.threads * most_on_a_node(plan)));
  }
  if (!slurm.partition.empty()) options.push_back("--partition=" + slurm.partition);
  if (!slurm.time.empty()) options.push_back("--time=" + slurm.time);
  if (!slurm.account.empty()) options.push_back("--account=" + slurm.account);
  if (slurm.gpus_per_node > 0) {
    options.push_back(fmt::format("--gpus-per-node={}", slurm.gpus_per_node));
  }
  options.push_back(fmt::format("--signal=B:USR1@{}", slurm.warning));
  options.insert(options.end(), {"--requeue", "--open-mode=append"});
  // Last, because sbatch uses the last of several values: the user's options win.
  options.insert(options.end(), slurm.options.begin(), slurm.options.end());
  return options;
}

// Quotes as sbatch parses #SBATCH lines: blanks and # are plain inside quotes, a backslash escapes
// the next character, and nothing is expanded.
std::string quoted(const std::string& option) {
  std::string text = "\"";
  for (const char c : option) {
    if (c == '"' || c == '\\') text += '\\';
    text += c;
  }
  return text + '"';
}

fs::path job_record(const fs::path& run) { return run / "slurm.json"; }
fs::path job_script(const fs::path& run) { return run / "slurm.sh"; }

}  // namespace

std::string batch_script(const plan::Plan& plan, std::string_view commands) {
  std::string script = "#!/bin/sh\n";
  for (const std::string& option : sbatch_options(plan)) {
    script += fmt::format("#SBATCH {}\n", quoted(option));
  }
  return script.append(commands);
}

SlurmJob SlurmJob::submit(const fs::path& run, const plan::Plan& plan) {
  store::replace_file(job_script(run), batch_script(plan, kRunPrepared));
  // --chdir, because the recipe's paths are relative to this directory. The output's name is
  // relative, too: sbatch interprets % in it, and an absolute path might contain one.
  const std::vector<std::string> argv = {"sbatch",
                                         "--parsable",
                                         "--chdir=" + fs::current_path().string(),
                                         "--output=" + (run / "slurm.log").string(),
                                         job_script(run).string(),
                                         base::own_program().string(),
                                         run.string()};
  return remember(run,
                  parse_job_number(slurm_output(argv, fmt::format("the job of {}", run.string()))));
}

std::optional<SlurmJob> SlurmJob::of(const fs::path& run) {
  const fs::path file = job_record(run);
  if (!store::is_present(file)) return std::nullopt;
  const std::string text = store::read_text_file(file, kMostRecordBytes);
  const auto refuse_record = [&](const std::string& what) -> base::UserError {
    return {base::ExitCode::corrupt,
            fmt::format("{} is damaged: {}; remove it if the run's Slurm job is gone",
                        file.string(), what)};
  };
  try {
    const nlohmann::json job = fields::parse_bounded_json(text).at("job");
    if (!job.is_number_integer()) throw refuse_record("its job is not a whole number");
    return SlurmJob(job.get<std::int64_t>());
  } catch (const fields::JsonError& error) {
    throw refuse_record(error.what());
  } catch (const nlohmann::json::exception& error) {
    throw refuse_record(fields::plain_json_reason(error.what()));
  }
}

SlurmJob SlurmJob::remember(const fs::path& run, std::int64_t number) {
  store::replace_file(job_record(run), nlohmann::json{{"job", number}}.dump() + "\n");
  return SlurmJob(number);
}

void SlurmJob::forget(const fs::path& run) { fs::remove(job_record(run)); }

void SlurmJob::drop_dead_lock(const fs::path& run) {
  const std::optional<base::LiveRun> holder = base::RunLock::holder(run);
  if (!holder || holder->here() || holder->job.empty()) return;
  const std::optional<JobState> state = SlurmJob(parse_job_number(holder->job)).state();
  if (!state || !state->is_active()) base::RunLock::clear(run, *holder);
}

void SlurmJob::refuse_live(const fs::path& run) {
  drop_dead_lock(run);
  const std::optional<SlurmJob> job = of(run);
  const std::optional<Allocation> ours = own_allocation();
  if (!job || (ours && ours->job == job->number_)) return;
  const std::optional<JobState> state = job->state();
  if (!state || !state->is_active()) return;
  throw base::UserError(
      base::ExitCode::bad_input,
      fmt::format("{} belongs to Slurm job {}, {}; watch it with: {}, end it with: {}",
                  run.string(), job->number_, state->sentence(),
                  base::strait_command("status", run), base::strait_command("stop", run)));
}

std::optional<JobState> SlurmJob::state() const {
  std::vector<std::string> argv = {"squeue", fmt::format("--jobs={}", number_)};
  for (std::string& word : job_state_format()) argv.push_back(std::move(word));
  const base::ProgramResult answer = run_slurm(argv);
  if (answer.succeeded()) return parse_job_state(answer.out);
  // squeue's message for jobs that ended some minutes ago.
  if (answer.err.find("Invalid job id") != std::string::npos) return std::nullopt;
  throw base::UserError(base::ExitCode::bad_input,
                        fmt::format("squeue failed for job {}: {}", number_, answer.error_line()));
}

void SlurmJob::signal(const char* name) const {
  slurm_output({"scancel", "--batch", fmt::format("--signal={}", name), fmt::format("{}", number_)},
               fmt::format("signal {} to job {}", name, number_));
}

void SlurmJob::cancel() const {
  slurm_output({"scancel", fmt::format("{}", number_)}, fmt::format("to cancel job {}", number_));
}

void SlurmJob::requeue() const {
  slurm_output({"scontrol", "requeue", fmt::format("{}", number_)},
               fmt::format("to requeue job {}", number_));
}

}  // namespace strait::hosts
