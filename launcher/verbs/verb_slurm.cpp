#include "launcher/verbs/verb_slurm.h"

#include <fmt/format.h>

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>
#include <vector>

#include "framework/store/checkpoint.h"
#include "launcher/control/stop_signals.h"
#include "launcher/run/run_files.h"
#include "launcher/slurm/allocation.h"
#include "launcher/slurm/slurm_job.h"
#include "launcher/user_error.h"
#include "launcher/verbs/verb_run.h"

namespace strait::launcher {
namespace {

namespace fs = std::filesystem;

// Steps that are safe; 0: none.
std::int64_t saved_steps(const fs::path& run) {
  const store::CheckpointList list = store::list_checkpoints(run);
  return list.complete.empty() ? 0 : number(list.complete.front().manifest.step);
}

// Gives the plan's hosts the names of the nodes that we have now.
std::int64_t name_nodes(const fs::path& path, const Allocation& allocation) {
  const RunDirectory directory = RunDirectory::open(path);
  RunFile run = read_run_file(directory.plan());
  const std::vector<NodeAddress> nodes = nodes_of(allocation);
  for (std::size_t i = 0; i < run.plan.hosts.size() && i < nodes.size(); ++i) {
    run.plan.hosts[i].name = nodes[i].node;
  }
  for (Plan::Process& process : run.plan.processes) {
    process.host = run.plan.hosts.at(process.host_index).name;
  }
  write_run_file(directory.plan(), run);
  return run.plan.steps;
}

// Saved, and out of time.
ExitCode requeue(const fs::path& run, const Allocation& allocation, bool advanced) {
  if (!advanced) {
    SlurmJob::forget(run);
    throw UserError(ExitCode::stalled,
                    fmt::format("Slurm's warning came before {} had saved anything new; ask for "
                                "more time (hosts.slurm.time), or to be warned later "
                                "(hosts.slurm.warning), then: strait resume {}",
                                run.string(), run.string()));
  }
  fmt::print("the time of Slurm job {} is nearly up: it goes back into the queue\n",
             allocation.job);
  std::fflush(stdout);
  SlurmJob::remember(run, allocation.job).requeue();
  return ExitCode::done;
}

// How the run came to its end in this job; interrupted: while hosts came up.
ExitCode launch_in_job(const fs::path& run, bool json) {
  RunWords words;
  words.recipe = run;
  words.json = json;
  words.in_job = true;
  try {
    return saved_steps(run) > 0 ? resume_run(words) : run_prepared(words);
  } catch (const UserError& error) {
    if (error.code() == ExitCode::interrupted && StopSignals::warned()) return error.code();
    if (!StopSignals::warned()) SlurmJob::forget(run);
    throw;
  }
}

}  // namespace

ExitCode give_to_slurm(RunDirectory directory, const Plan& plan, bool json) {
  const fs::path run = directory.path();
  if (own_allocation()) {
    { const RunDirectory released = std::move(directory); }
    return run_allocated(run, json);
  }
  const SlurmJob job = SlurmJob::submit(run, plan);
  if (json) {
    fmt::print(
        "{}\n",
        nlohmann::json{{"event", "submitted"}, {"run", run.string()}, {"slurm_job", job.number()}}
            .dump());
    return ExitCode::done;
  }
  fmt::print("{} is Slurm job {}, on {} nodes\n", run.string(), job.number(), plan.hosts.size());
  fmt::print("watch     strait status {}   (its output: {})\n", run.string(),
             (run / "slurm.log").string());
  fmt::print("end       strait stop {}\n", run.string());
  return ExitCode::done;
}

ExitCode run_allocated(const fs::path& run, bool json) {
  StopSignals::expect_warning();
  const std::optional<Allocation> allocation = own_allocation();
  if (!allocation) {
    throw UserError(ExitCode::bad_input,
                    "run-allocated is for the script of a Slurm job; use: strait run RECIPE");
  }
  SlurmJob::refuse_live(run);
  // Only a job whose script we are can be signalled and requeued for us.
  if (allocation->is_script) SlurmJob::remember(run, allocation->job);
  const std::int64_t steps = name_nodes(run, *allocation);
  const std::int64_t before = saved_steps(run);
  const ExitCode code = launch_in_job(run, json);
  const std::int64_t after = saved_steps(run);
  const bool out_of_time = StopSignals::warned() && after < steps &&
                           (code == ExitCode::done || code == ExitCode::interrupted);
  if (out_of_time && allocation->is_script) return requeue(run, *allocation, after > before);
  SlurmJob::forget(run);
  return code;
}

bool is_requeued(const Plan& plan, const fs::path& run) {
  if (plan.recipe.hosts.backend != BackendKind::slurm) return false;
  const std::optional<Allocation> allocation = own_allocation();
  if (!allocation || allocation->restarts == 0) return false;
  const std::optional<SlurmJob> job = SlurmJob::of(run);
  return job && job->number() == allocation->job;
}

}  // namespace strait::launcher
