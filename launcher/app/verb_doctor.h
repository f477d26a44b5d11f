#pragma once

#include "launcher/base/exit_code.h"
#include "launcher/app/verb_run.h"

namespace strait::app {

// `strait doctor RECIPE`: looks at everything that a run needs and starts nothing: recipe, model,
// data, this machine, and every host. A line for each; the code is that of the first that is wrong.
base::ExitCode examine(const RunWords& words);

}  // namespace strait::app
