#pragma once

#include <string>

#include "launcher/run/run_directory.h"
#include "launcher/run/run_files.h"

namespace strait::launcher {

// A run that ended while its newest checkpoint was still on its way here left shards on hosts:
// calls those hosts and brings the shards home. Returns what is worth knowing, a sentence; empty
// where there was nothing to do. What cannot be brought leaves the checkpoint unusable here, and an
// older one is gone on from.
std::string recover_checkpoint(RunDirectory& directory, const RunFile& run);

}  // namespace strait::launcher
