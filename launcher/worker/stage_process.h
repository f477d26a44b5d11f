#pragma once

#include "launcher/base/errors.h"

namespace strait::worker {

// Runs one stage process: reads its job from `job_descriptor` (stdin), loads, connects its links,
// trains, exits. A failure is reported to the coordinator in one sentence and becomes the exit
// code. When the descriptor closes, the launcher is gone and the process exits.
base::ExitCode run_stage_process(int job_descriptor);

}  // namespace strait::worker
