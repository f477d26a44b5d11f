#pragma once

#include <string>
#include <vector>

#include "launcher/control/run_directory.h"
#include "launcher/plan/run_files.h"
#include "launcher/recipe/recipe.h"

namespace strait::app {

// The run with these overrides ("pipeline.stages=3"): same data and name, another plan. The method
// that `sync.method = "auto"` chose stays unless an override is of [sync]. Writes nothing.
// UserError: an override is invalid, or changes what the run learns.
plan::RunFile changed_run(const control::RunDirectory& directory, const plan::RunFile& run,
                          const std::vector<std::string>& overrides);
// The same with a whole recipe; that method stays.
plan::RunFile changed_run(const plan::RunFile& run, const recipe::Recipe& recipe);

}  // namespace strait::app
