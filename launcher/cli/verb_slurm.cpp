#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>
#include <vector>

#include "framework/store/checkpoint.h"
#include "launcher/base/command_name.h"
#include "launcher/base/errors.h"
#include "launcher/base/stop_signals.h"
#include "launcher/base/text.h"
#include "launcher/cli/run_options.h"
#include "launcher/cli/verbs.h"
#include "launcher/hosts/allocation.h"
#include "launcher/hosts/slurm_job.h"
#include "launcher/plan/plan.h"
#include "launcher/plan/run_files.h"
#include "launcher/run/resume_changes.h"
#include "launcher/run/run_directory.h"

namespace strait::cli {
namespace {

namespace fs = std::filesystem;

// The step of the newest complete checkpoint; 0: there is none.
std::int64_t saved_steps(const fs::path& run) {
  const store::CheckpointList list = store::list_checkpoints(run);
  return list.complete.empty() ? 0 : number(list.complete.front().manifest.step);
}

// From which a job trains: of the newest checkpoint, or of an older one that the user chose, until
// that is applied.
std::int64_t first_step(const fs::path& run) {
  const std::int64_t newest = saved_steps(run);
  const auto pending = run::pending_changes(run::RunDirectory::open(run));
  return pending && pending->from ? std::min(newest, number(*pending->from)) : newest;
}

// Steps that the run makes in all.
std::int64_t planned_steps(const fs::path& path) {
  const run::RunDirectory directory = run::RunDirectory::open(path);
  return read_run(directory.path()).plan.steps;
}

// After the run has saved because of Slurm's warning. Without progress since the start of the job a
// requeued job would never advance, so that is an error.
base::ExitCode requeue(const fs::path& run, const hosts::Allocation& allocation, bool advanced) {
  if (!advanced) {
    hosts::SlurmJob::forget(run);
    throw base::UserError(
        base::ExitCode::stalled,
        fmt::format("Slurm's warning came before {} had saved anything new; ask for "
                    "more time (hosts.slurm.time), or to be warned later "
                    "(hosts.slurm.warning), then: {}",
                    run.string(), base::strait_command("resume", run)));
  }
  fmt::print("the time of Slurm job {} is nearly up: it goes back into the queue\n",
             allocation.job);
  std::fflush(stdout);
  hosts::SlurmJob::remember(run, allocation.job).requeue();
  return base::ExitCode::done;
}

// How the run ended in this job. `interrupted`: the warning came while hosts were starting.
base::ExitCode launch_in_job(const fs::path& run, bool as_json) {
  RunOptions options;
  options.recipe = run;
  options.json = as_json;
  options.in_job = true;
  try {
    // Not only complete ones: a run whose checkpoints are all damaged must not begin again.
    return store::committed_steps(run).empty() ? run_prepared(options) : resume_run(options);
  } catch (const base::UserError& error) {
    if (error.code() == base::ExitCode::interrupted && base::StopSignals::warned())
      return error.code();
    if (!base::StopSignals::warned()) hosts::SlurmJob::forget(run);
    throw;
  }
}

}  // namespace

void name_nodes(plan::RunFile& run) {
  const std::optional<hosts::Allocation> allocation = hosts::own_allocation();
  if (!allocation) return;
  const std::vector<hosts::NodeAddress> nodes = hosts::nodes_of(*allocation);
  for (std::size_t i = 0; i < run.plan.hosts.size() && i < nodes.size(); ++i) {
    run.plan.hosts[i].name = nodes[i].node;
  }
  for (plan::Plan::Process& process : run.plan.processes) {
    process.host = run.plan.hosts.at(process.host_index).name;
  }
}

base::ExitCode submit_to_slurm(run::RunDirectory directory, const plan::Plan& plan, bool json) {
  const fs::path run = directory.path();
  if (hosts::own_allocation()) {
    { const run::RunDirectory released = std::move(directory); }
    return run_allocated(run, json);
  }
  const hosts::SlurmJob job = hosts::SlurmJob::submit(run, plan);
  if (json) {
    fmt::print(
        "{}\n",
        nlohmann::json{{"event", "submitted"}, {"run", run.string()}, {"slurm_job", job.number()}}
            .dump(-1, ' ', false, nlohmann::json::error_handler_t::replace));
    return base::ExitCode::done;
  }
  fmt::print("{} is Slurm job {}, on {} nodes\n", run.string(), job.number(), plan.hosts.size());
  fmt::print("watch     {}   (its output: {})\n", base::strait_command("status", run),
             (run / "slurm.log").string());
  fmt::print("end       {}\n", base::strait_command("stop", run));
  return base::ExitCode::done;
}

base::ExitCode run_allocated(const fs::path& run, bool as_json) {
  base::StopSignals::expect_warning();
  const std::optional<hosts::Allocation> allocation = hosts::own_allocation();
  if (!allocation) {
    throw base::UserError(base::ExitCode::bad_input,
                          "run-allocated is for the script of a Slurm job; use: " +
                              base::command_name() + " run RECIPE");
  }
  hosts::SlurmJob::refuse_live(run);
  // Slurm signals and requeues only the job whose script this process is.
  if (allocation->is_script) hosts::SlurmJob::remember(run, allocation->job);
  const std::int64_t before = first_step(run);
  const base::ExitCode code = launch_in_job(run, as_json);
  const std::int64_t after = first_step(run);
  // planned_steps() only now: a resume changes the plan once its processes are up.
  const bool out_of_time = base::StopSignals::warned() && after < planned_steps(run) &&
                           (code == base::ExitCode::done || code == base::ExitCode::interrupted);
  if (out_of_time && allocation->is_script) return requeue(run, *allocation, after > before);
  hosts::SlurmJob::forget(run);
  return code;
}

bool is_requeued(const plan::Plan& plan, const fs::path& run) {
  if (plan.recipe.hosts.backend != recipe::BackendKind::slurm) return false;
  const std::optional<hosts::Allocation> allocation = hosts::own_allocation();
  if (!allocation || allocation->restarts == 0) return false;
  const std::optional<hosts::SlurmJob> job = hosts::SlurmJob::of(run);
  return job && job->number() == allocation->job;
}

// Hidden: only the scripts of Slurm jobs call it.
void add_run_allocated(CLI::App& cli, Command& command) {
  const auto run = std::make_shared<std::string>();
  CLI::App* verb = cli.add_subcommand("run-allocated", "run in the Slurm job that this is");
  verb->group("");
  verb->add_option("run", *run, "its directory, runs/NAME")->required();
  verb->callback([run, &command] { command = [run] { return run_allocated(*run, false); }; });
}

}  // namespace strait::cli
