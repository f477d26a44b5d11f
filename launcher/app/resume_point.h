#pragma once

#include <optional>

#include "framework/store/checkpoint.h"
#include "launcher/console/console.h"
#include "launcher/control/run_directory.h"
#include "launcher/plan/run_files.h"

namespace strait::app {

// The checkpoint that `resume` goes on from: that of --from STEP, otherwise the newest, with every
// byte compared. Fetches shards that a former launch left on hosts; changes and removes nothing
// else. A newer checkpoint is passed over only if it was never complete or is certainly damaged;
// one that may still be recoverable (a host is down, the disk fails, another build wrote it) needs
// the user's word. UserError, StoreError: there is no such checkpoint, or that word is missing.
store::Resumable choose_resume_point(control::RunDirectory& directory, const plan::RunFile& run,
                                     std::optional<store::Step> from, console::Console& console);

}  // namespace strait::app
