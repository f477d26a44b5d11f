#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <functional>

#include "launcher/app/run_options.h"
#include "launcher/base/errors.h"
#include "launcher/control/run_directory.h"
#include "launcher/plan/plan.h"

// The verbs of `strait`, each with its flags in verb_NAME.cpp. A new one is a function here, its
// source, and a line in strait_main.cpp.
namespace strait::app {

// What the command line asks for; set when the flags of a verb have been parsed.
using Command = std::function<base::ExitCode()>;

void add_init(CLI::App& cli, Command& command);
void add_prepare(CLI::App& cli, Command& command);
void add_plan(CLI::App& cli, Command& command);
void add_probe(CLI::App& cli, Command& command);
void add_doctor(CLI::App& cli, Command& command);
void add_install(CLI::App& cli, Command& command);
void add_run(CLI::App& cli, Command& command);
void add_run_allocated(CLI::App& cli, Command& command);  // hidden: scripts of Slurm jobs call it
void add_resume(CLI::App& cli, Command& command);
void add_status(CLI::App& cli, Command& command);
void add_watch(CLI::App& cli, Command& command);
void add_logs(CLI::App& cli, Command& command);
void add_stop(CLI::App& cli, Command& command);
void add_eval(CLI::App& cli, Command& command);
void add_generate(CLI::App& cli, Command& command);
void add_export(CLI::App& cli, Command& command);

// What verbs do for each other.

// Launches a run whose directory holds its plan and no checkpoint yet.
base::ExitCode run_prepared(const RunOptions& options);
// Goes on from the newest complete checkpoint, with the same bits as a run that was never stopped;
// with overrides as another pipeline (changed_run.h).
base::ExitCode resume_run(const RunOptions& options);

// The end of `run` and `resume` where Slurm starts processes: submits a job that does the rest, and
// says how to watch it. Inside a job: does the rest at once, in that job.
base::ExitCode submit_to_slurm(control::RunDirectory directory, const plan::Plan& plan, bool json);
// In the Slurm job that this is: starts the run, or goes on from its newest checkpoint. When Slurm
// warns that the time is nearly up, the run saves and the job goes back into the queue.
base::ExitCode run_allocated(const std::filesystem::path& run, bool json);
// Whether this process is in a job that was requeued while it ran the run in that directory.
bool is_requeued(const plan::Plan& plan, const std::filesystem::path& run);

// Asks the launcher of a live run to finish its step, save and leave, or with `now` to leave at
// once; waits until it is gone and says where the checkpoint is. UserError when no launcher is
// live there, or when it still is after `timeout`.
base::ExitCode stop_run(const std::filesystem::path& run, bool now, std::chrono::seconds timeout);
// The run goes on without this replica, whose unfinished work is left out. Waits until the launcher
// has let it go. UserError where the run cannot go on without it.
base::ExitCode stop_replica(const std::filesystem::path& run, std::uint32_t replica,
                            std::chrono::seconds timeout);
// A replica that has left a live run rejoins it. Waits until it takes part. UserError where it does
// already, or cannot.
base::ExitCode resume_replica(const std::filesystem::path& run, std::uint32_t replica,
                              std::chrono::seconds timeout);

// Prints what a run does now, or how it ended, from its files; needs no answer from the run itself.
// UserError when there is no run.
base::ExitCode show_status(const std::filesystem::path& run, bool json);

}  // namespace strait::app
