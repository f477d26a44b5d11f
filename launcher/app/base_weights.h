#pragma once

#include "launcher/control/run_directory.h"
#include "launcher/plan/plan.h"

namespace strait::app {

// Of a run that begins with the weights of another one. One that trains adapters needs them for as
// long as it exists, but the other run prunes its checkpoints: it gets hard links to them, or
// copies where they are on another disk, in a folder of its own. Names in the plan where they are.
// StoreError.
void keep_base_weights(const control::RunDirectory& directory, plan::Plan& plan);

}  // namespace strait::app
