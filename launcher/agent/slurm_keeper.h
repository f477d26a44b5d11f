#pragma once

#include "launcher/base/exit_code.h"

namespace strait::agent {

// The other end of slurm_calls: reads all jobs on `input`, takes the one of this task's number, and
// keeps the node until the run lets it go.
base::ExitCode run_slurm_keeper(int input);

}  // namespace strait::agent
