#pragma once

#include "launcher/exit_code.h"
#include "launcher/verbs/verb_run.h"

namespace strait::launcher {

// `strait doctor RECIPE`: looks at everything that a run needs and starts nothing: recipe, model,
// data, this machine, and every host. A line for each; the code is that of the first that is wrong.
ExitCode examine(const RunWords& words);

}  // namespace strait::launcher
