#pragma once

#include <filesystem>
#include <string>

#include "launcher/base/errors.h"
#include "launcher/hosts/agent_job.h"

namespace strait::hosts {

// This program's file, or /proc/self/exe if a newer build has replaced the file meanwhile.
std::string stage_program_here();

// Runs the agent of a host for one generation of a run: connects to the launcher, starts processes
// on request and reports their ends. Returns when the launcher ends it, or after job.hold seconds
// without contact; all processes that it started have ended then. SIGINT or SIGTERM once asks the
// launcher to save and end it, twice ends it at once (`interrupted`). Logs to spdlog's default
// logger.
base::ExitCode run_agent(const AgentJob& job);

}  // namespace strait::hosts
