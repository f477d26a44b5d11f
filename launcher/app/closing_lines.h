#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "launcher/control/outcome.h"
#include "launcher/plan/plan.h"

namespace strait::app {

// What the user can do with a run that has ended: results and commands, a line each. Reads which
// checkpoints the run has.
std::vector<std::string> closing_lines(const std::filesystem::path& run, const plan::Plan& plan,
                                       const control::Outcome& outcome);

}  // namespace strait::app
