#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>

#include "launcher/base/exit_code.h"

namespace strait::app {

// `strait stop RUN --replica R`: the run goes on without this replica. What that was working on is
// left out. Waits until the launcher has let it go. UserError where the run cannot go on without
// it.
base::ExitCode stop_replica(const std::filesystem::path& run, std::uint32_t replica,
                      std::chrono::seconds patience);

// `strait resume RUN --replica R`: a replica that has left a live run comes back to it. Waits until
// it takes part. UserError where it does already, or cannot.
base::ExitCode resume_replica(const std::filesystem::path& run, std::uint32_t replica,
                        std::chrono::seconds patience);

}  // namespace strait::app
