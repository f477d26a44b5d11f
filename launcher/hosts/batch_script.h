#pragma once

#include <string>
#include <string_view>

#include "launcher/plan/plan.h"

namespace strait::hosts {

// What Slurm runs on the first node of a job, one keeper's place on each node. #SBATCH lines from
// the plan, then `last_words`: a shell script's end that is the same for all runs. Pure.
std::string batch_script(const plan::Plan& plan, std::string_view last_words);

// For a run whose directory is prepared: sbatch is given the script, the program and the directory.
// exec: the program itself gets the signals that Slurm sends to the script.
inline constexpr std::string_view kRunPrepared =
    "# $1: the program strait, $2: the run's directory.\n"
    "exec \"$1\" run-allocated \"$2\"\n";

}  // namespace strait::hosts
