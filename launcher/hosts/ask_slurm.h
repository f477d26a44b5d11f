#pragma once

#include <string>
#include <vector>

#include "launcher/process/run_program.h"

namespace strait::hosts {

// Runs one of Slurm's commands. A busy controller has a minute; UserError (stalled) beyond.
process::ProgramAnswer call_slurm(const std::vector<std::string>& argv);

// What it printed. UserError: it failed; the sentence says what it refused ("to cancel job 12") and
// why, in its own words.
std::string ask_slurm(const std::vector<std::string>& argv, const std::string& doing);

}  // namespace strait::hosts
