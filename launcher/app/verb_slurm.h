#pragma once

#include <filesystem>

#include "launcher/base/exit_code.h"
#include "launcher/plan/plan.h"
#include "launcher/control/run_directory.h"

namespace strait::app {

// The end of `strait run` and `strait resume` where Slurm starts processes: submits a job that
// does the rest, and says how to watch it. Inside of a job: does the rest at once, in that job.
base::ExitCode give_to_slurm(control::RunDirectory directory, const plan::Plan& plan, bool json);

// `strait run-allocated RUN`, which a job's script becomes: starts the run, or goes on from its
// newest checkpoint. When Slurm warns that the time is nearly up, the run saves and the job goes
// back into the queue.
base::ExitCode run_allocated(const std::filesystem::path& run, bool json);

// Whether we are in a job that was requeued while it ran the run in that directory.
bool is_requeued(const plan::Plan& plan, const std::filesystem::path& run);

}  // namespace strait::app
