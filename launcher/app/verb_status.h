#pragma once

#include <filesystem>

#include "launcher/base/exit_code.h"

namespace strait::app {

// `strait status RUN`: prints what a run does now, or how it ended, from its files; needs no answer
// from the run itself. UserError when there is no run.
base::ExitCode show_status(const std::filesystem::path& run, bool json);

}  // namespace strait::app
