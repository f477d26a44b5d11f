#pragma once

#include <string>

#include "launcher/base/exit_code.h"

namespace strait::agent {

// `strait-stage --join TOKEN`: keeps this host for the run that the token is of, until the run lets
// it go. TOKEN is a file, or "-" for stdin. Prints what keeps it from that, in one sentence.
base::ExitCode join_run(const std::string& token);

}  // namespace strait::agent
