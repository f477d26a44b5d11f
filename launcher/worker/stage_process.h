#pragma once

#include "launcher/base/exit_code.h"

namespace strait::worker {

// The life of one stage process: takes its job from `job_descriptor` (stdin), loads, binds, meets
// its peers, trains, leaves. Everything that goes wrong is told to the coordinator in one sentence
// and becomes the exit code. The descriptor's end means that the launcher is gone: the process
// ends.
base::ExitCode run_stage_process(int job_descriptor);

}  // namespace strait::worker
