#pragma once

#include "launcher/base/exit_code.h"

namespace strait::agent {

// The other end of SshCall, on the host: greets on `output`, reads its job on `input`, sees whether
// it can work here, and becomes a keeper in a session of its own that no terminal and no ssh can
// take down. Answers with its pid, or with what is in the way, and returns: in the process that was
// called with the code it is to end with, in the keeper with that of its whole life.
//
// Call it before there is any thread: the keeper is a fork.
base::ExitCode run_keeper_front(int input, int output);

}  // namespace strait::agent
