#pragma once

#include <filesystem>
#include <string>

#include "framework/net/run_id.h"

// Where a host's agent keeps its files.
namespace strait::hosts {

// A keeper's directory, "~" and all; absolute. It need not exist.
std::filesystem::path agent_directory(const std::string& written);

// What a keeper logs, in the folder of a run's logs.
inline constexpr const char* kAgentLog = "keeper.log";

// Where the files of a run are on a host, below the keeper's directory: the same for every
// generation of the run, and another for every run.
std::filesystem::path host_run_directory(const std::filesystem::path& directory,
                                         const std::string& run_name, const net::RunId& run);

}  // namespace strait::hosts
