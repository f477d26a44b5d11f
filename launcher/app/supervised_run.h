#pragma once

#include <optional>

#include "framework/store/sample.h"
#include "launcher/console/console.h"
#include "launcher/control/outcome.h"
#include "launcher/control/run_directory.h"
#include "launcher/launch/run_launch.h"
#include "launcher/plan/run_files.h"

namespace strait::app {

// Launches the run, and again as long as launch::RestartPolicy says so: from its newest complete
// checkpoint, on the hosts that answer, with spare ones or fewer stages for the others. `console`
// observes every launch. `chosen`: the user's checkpoint of `options` (--from); until a launch has
// trained, and so given newer ones up, a restart takes it again.
//
// Returns how the run ended: of failures that came back without a new checkpoint in between, with
// the first; `trained` if any launch has. UserError: the first launch could not start, or the user
// stopped it while it did.
control::Outcome run_supervised(control::RunDirectory& directory, const plan::RunFile& run,
                                const launch::LaunchOptions& options,
                                std::optional<store::Step> chosen, console::Console& console);

}  // namespace strait::app
