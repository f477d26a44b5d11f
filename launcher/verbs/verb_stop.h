#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>

#include "launcher/exit_code.h"

namespace strait::launcher {

// `strait stop RUN`: asks the launcher of a live run to finish its step, save and leave, or with
// `now` to leave at once; waits until it is gone and says where the checkpoint is. UserError when
// nothing lives there, or when it still does at the end of `patience`.
ExitCode stop_run(const std::filesystem::path& run, bool now, std::chrono::seconds patience);

// `strait stop RUN --replica R`: the run goes on without this replica. What that was working on is
// left out. Waits until the launcher has let it go. UserError where the run cannot go on without
// it.
ExitCode stop_replica(const std::filesystem::path& run, std::uint32_t replica,
                      std::chrono::seconds patience);

}  // namespace strait::launcher
