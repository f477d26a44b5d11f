#pragma once

#include <string>

#include "launcher/base/errors.h"

// How the agent of a host gets its job: over ssh, or as a token, which a person or srun brings.
namespace strait::hosts {

// The other end of SshSession. Greets on `output`, reads a request on `input`, checks that
// this host can be used, and forks: the child is the agent, in a session of its own that survives
// the end of ssh. Answers with its pid or with the error, and returns the exit code: in the parent
// when the launcher has disconnected, in the agent when its run has ended.
base::ExitCode run_agent_over_ssh(int input, int output);

// `strait join TOKEN`: reads the job from the file, or from stdin for "-".
base::ExitCode run_agent_from_token(const std::string& token);

}  // namespace strait::hosts
