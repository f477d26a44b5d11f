#pragma once

#include <string>

#include "launcher/base/errors.h"

namespace strait::agent {

// The other end of SshSession, on the host: greets on `output`, reads its job on `input`, sees whether
// it can work here, and becomes a keeper in a session of its own that no terminal and no ssh can
// take down. Answers with its pid, or with what is in the way, and returns: in the process that was
// called with the code it is to end with, in the keeper with that of its whole life.
//
// Call it before there is any thread: the keeper is a fork.
base::ExitCode run_agent_over_ssh(int input, int output);


// `strait-stage --join TOKEN`: keeps this host for the run that the token is of, until the run lets
// it go. TOKEN is a file, or "-" for stdin. Prints what keeps it from that, in one sentence.
base::ExitCode run_agent_from_token(const std::string& token);


// The other end of slurm_starters: reads all jobs on `input`, takes the one of this task's number, and
// keeps the node until the run lets it go.
base::ExitCode run_agent_of_slurm_step(int input);

}  // namespace strait::agent
