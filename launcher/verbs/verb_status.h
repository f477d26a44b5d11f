#pragma once

#include <filesystem>

#include "launcher/exit_code.h"

namespace strait::launcher {

// `strait status RUN`: prints what a run does now, or how it ended, from its files; needs no answer
// from the run itself. UserError when there is no run.
ExitCode show_status(const std::filesystem::path& run, bool json);

}  // namespace strait::launcher
