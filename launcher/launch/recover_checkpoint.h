#pragma once

#include <string>

#include "launcher/control/run_directory.h"
#include "launcher/launch/run_transfer.h"
#include "launcher/plan/run_files.h"

namespace strait::launch {

// A run that ended while its newest checkpoint was still on its way here left shards on hosts:
// calls those hosts and brings the shards home; `say` hears of it when that takes a while. Returns
// what is worth knowing, a sentence; empty where there was nothing to do. What cannot be brought
// leaves the checkpoint unusable here, and an older one is gone on from. UserError interrupted: the
// user did not want to wait, which is no reason to lose what the hosts have.
std::string recover_checkpoint(control::RunDirectory& directory, const plan::RunFile& run,
                               const ModelQuestions& model, const RunTransfer::Say& say);

}  // namespace strait::launch
