#pragma once

#include <filesystem>
#include <string>

#include "framework/net/run_id.h"

// Where a host's agent keeps its files.
namespace strait::hosts {

// An agent's directory as an absolute path, with "~" replaced. It need not exist.
std::filesystem::path agent_directory(const std::string& written);

// The agent's log, in the folder of a run's logs.
inline constexpr const char* kAgentLog = "keeper.log";

// The directory of a run on a host, below the agent's: the same for all generations of the run, and
// different for every run.
std::filesystem::path host_run_directory(const std::filesystem::path& directory,
                                         const std::string& run_name, const net::RunId& run);

}  // namespace strait::hosts
