#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <functional>

#include "launcher/base/errors.h"
#include "launcher/cli/run_options.h"
#include "launcher/plan/plan.h"
#include "launcher/plan/run_files.h"
#include "launcher/run/run_directory.h"

// The verbs of `strait`, each with its flags in verb_NAME.cpp; resume is in verb_run.cpp, and
// run-allocated in verb_slurm.cpp. A new one is a function here, its source, and a line in
// strait_main.cpp.
namespace strait::cli {

// Runs the chosen verb; set when its flags have been parsed.
using Command = std::function<base::ExitCode()>;

void add_init(CLI::App& cli, Command& command);
void add_prepare(CLI::App& cli, Command& command);
void add_plan(CLI::App& cli, Command& command);
void add_probe(CLI::App& cli, Command& command);
void add_doctor(CLI::App& cli, Command& command);
void add_install(CLI::App& cli, Command& command);
void add_run(CLI::App& cli, Command& command);
void add_run_allocated(CLI::App& cli, Command& command);  // hidden: scripts of Slurm jobs call it
void add_launch(CLI::App& cli, Command& command);
void add_join(CLI::App& cli, Command& command);
void add_resume(CLI::App& cli, Command& command);
void add_status(CLI::App& cli, Command& command);
void add_watch(CLI::App& cli, Command& command);
void add_logs(CLI::App& cli, Command& command);
void add_stop(CLI::App& cli, Command& command);
void add_eval(CLI::App& cli, Command& command);
void add_generate(CLI::App& cli, Command& command);
void add_export(CLI::App& cli, Command& command);
void add_checkpoint(CLI::App& cli, Command& command);

// std::system_error: what was printed did not all get to stdout.
void flush_output();

// Functions that other verbs or tests call.

// In a Slurm job: launches a run whose directory holds its plan and no checkpoint yet.
base::ExitCode run_prepared(const RunOptions& options);
// Resumes from the newest complete checkpoint (resume_point.h), with the same bits as a run that
// was never stopped; with overrides as another pipeline (changed_run.h). The run's files change
// when all processes have loaded, not before.
base::ExitCode resume_run(const RunOptions& options);

// The last part of `run` and `resume` with hosts.backend = "slurm": submits a job that launches the
// run, and prints how to watch it. Inside a job: launches the run in that job.
base::ExitCode submit_to_slurm(run::RunDirectory directory, const plan::Plan& plan, bool json);
// Inside a Slurm job: starts the run, or resumes from its newest checkpoint. When Slurm warns that
// the time limit is near, the run saves and the job is requeued.
base::ExitCode run_allocated(const std::filesystem::path& run, bool json);
// Inside a Slurm job: renames the plan's hosts to the nodes of its allocation.
void name_nodes(plan::RunFile& run);
// Whether this process is in a job that was requeued while it trained the run in that directory.
bool is_requeued(const plan::Plan& plan, const std::filesystem::path& run);

// Requests the launcher of a live run to finish its step, save and exit, or with `now` to exit at
// once. Waits until it has ended and prints where the checkpoint is. UserError: no launcher is live
// there, or it is still live after `timeout`.
base::ExitCode stop_run(const std::filesystem::path& run, bool now, std::chrono::seconds timeout);
// Removes a replica from a live run; its unfinished work is dropped. Waits until it has left.
// UserError: the run cannot continue without it.
base::ExitCode stop_replica(const std::filesystem::path& run, std::uint32_t replica,
                            std::chrono::seconds timeout);
// Lets a replica rejoin a live run. Waits until it has joined. UserError: it is active, or cannot
// rejoin.
base::ExitCode resume_replica(const std::filesystem::path& run, std::uint32_t replica,
                              std::chrono::seconds timeout);

// Prints the state of a run, or how it ended, from its files; does not connect to the run.
// UserError: there is no run.
base::ExitCode show_status(const std::filesystem::path& run, bool json);

}  // namespace strait::cli
