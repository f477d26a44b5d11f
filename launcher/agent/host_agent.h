#pragma once

#include <filesystem>
#include <string>

#include "launcher/base/errors.h"
#include "launcher/hosts/agent_job.h"

namespace strait::agent {

// This program's file, or /proc/self/exe if a newer build has replaced the file meanwhile.
std::string stage_program_here();

// Runs the agent of a host for one generation of a run: connects to the launcher, starts processes
// on request and reports their ends. Returns when the launcher ends it, or after job.hold seconds
// without contact; all processes that it started have ended then. Logs to spdlog's default logger.
base::ExitCode run_agent(const hosts::AgentJob& job);

// The other end of hosts::SshSession. Greets on `output`, reads a request on `input`, checks that
// this host can be used, and forks: the child is the agent, in a session of its own that survives
// the end of ssh. Answers with its pid or with the error, and returns the exit code: in the parent
// when the launcher has disconnected, in the agent when its run has ended.
base::ExitCode run_agent_over_ssh(int input, int output);

// `strait-stage --join TOKEN`: reads the job from the file, or from stdin for "-".
base::ExitCode run_agent_from_token(const std::string& token);

// The other end of hosts::slurm_starters: reads the jobs of all nodes on `input`, takes the one
// with this task's number, and runs its agent until the run ends.
base::ExitCode run_agent_of_slurm_step(int input);

}  // namespace strait::agent
