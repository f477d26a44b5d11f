#pragma once

#include <filesystem>
#include <string>

#include "launcher/base/errors.h"
#include "launcher/hosts/agent_job.h"

namespace strait::agent {

// This very program, also where a newer build has taken its place meanwhile.
std::string stage_program_here();

// Keeps a host for one generation of a run: dials the launcher, starts processes as it is told, and
// says what becomes of them. Returns when the launcher lets it go, or has not been heard of for
// job.hold seconds; then no process that it started is left. Logs to spdlog's default logger.
base::ExitCode run_agent(const hosts::AgentJob& job);

}  // namespace strait::agent
