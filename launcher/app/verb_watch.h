#pragma once

#include <filesystem>

#include "launcher/base/exit_code.h"

namespace strait::app {

// `strait watch RUN`: a picture of a run that keeps up with it, on the whole terminal until q is
// pressed; into a file or pipe one picture after the other until the run is over. Reads the run's
// files only, so closing it changes nothing. UserError: there is no run that has started.
base::ExitCode watch_run(const std::filesystem::path& run);

}  // namespace strait::app
