#pragma once

#include <chrono>
#include <filesystem>

#include "launcher/base/exit_code.h"

namespace strait::app {

// `strait stop RUN`: asks the launcher of a live run to finish its step, save and leave, or with
// `now` to leave at once; waits until it is gone and says where the checkpoint is. UserError when
// nothing lives there, or when it still does at the end of `patience`.
base::ExitCode stop_run(const std::filesystem::path& run, bool now, std::chrono::seconds patience);

}  // namespace strait::app
