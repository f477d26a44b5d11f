#pragma once

#include <string>
#include <vector>

#include "launcher/recipe/recipe.h"
#include "launcher/run/run_directory.h"
#include "launcher/run/run_files.h"

namespace strait::launcher {

// A recipe without what may change from one start of a run to the next, because it changes how the
// run is carried out and not what is learnt from what: plugins, [pipeline], [codec], [sync],
// [checkpoint], [hosts].
Recipe lasting_part(Recipe recipe);

// The run as it goes on with these overrides ("pipeline.stages=3"): the same data and name, another
// plan. What `sync.method = "auto"` chose stays, unless they are of [sync]. Writes nothing.
// UserError where an override is of the lasting part, or is no good.
RunFile changed_run(const RunDirectory& directory, const RunFile& run,
                    const std::vector<std::string>& overrides);

}  // namespace strait::launcher
