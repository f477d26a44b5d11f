#pragma once

#include <string>
#include <vector>

#include "launcher/control/run_directory.h"
#include "launcher/plan/run_files.h"
#include "launcher/recipe/recipe.h"

namespace strait::app {

// The run as it goes on with these overrides ("pipeline.stages=3"): the same data and name, another
// plan. What `sync.method = "auto"` chose stays, unless they are of [sync]. Writes nothing.
// UserError where an override is of the lasting part, or is no good.
plan::RunFile changed_run(const control::RunDirectory& directory, const plan::RunFile& run,
                          const std::vector<std::string>& overrides);

}  // namespace strait::app
