#pragma once

#include "framework/store/sample.h"
#include "launcher/plan/run_files.h"
#include "launcher/run/outcome.h"
#include "launcher/run/run_directory.h"
#include "launcher/run/run_launch.h"

namespace strait::run {

// Launches the run, and again as long as RestartPolicy says so: from its newest complete
// checkpoint, on the hosts that answer, with spare ones or fewer stages for the others. `observer`
// observes every launch. `chosen`: the user's checkpoint of `options` (--from); until a launch has
// trained, and so given newer ones up, a restart takes it again.
//
// Returns how the run ended: of failures that came back without a new checkpoint in between, with
// the first; `trained` if any launch has. UserError: the first launch could not start, or the user
// stopped it while it did. The recipe's commands (hooks.h) have been run by then.
Outcome run_supervised(RunDirectory& directory, const plan::RunFile& run,
                       const LaunchOptions& options, std::optional<store::Step> chosen,
                       RunObserver& observer);

}  // namespace strait::run
