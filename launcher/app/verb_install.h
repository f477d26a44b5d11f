#pragma once

#include "launcher/base/exit_code.h"
#include "launcher/app/verb_run.h"

namespace strait::app {

// `strait install --hosts RECIPE`: brings this build to every host of the recipe, all at the same
// time, and checks it there. A line for each; hosts that fail do not keep the others from it, and
// the code is that of the first.
base::ExitCode install_on_hosts(const RunWords& words);

}  // namespace strait::app
