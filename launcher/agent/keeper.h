#pragma once

#include <filesystem>
#include <string>

#include "launcher/base/exit_code.h"
#include "launcher/hosts/keeper_job.h"

namespace strait::agent {

// This very program, also where a newer build has taken its place meanwhile.
std::string stage_program_here();

// A keeper's directory, "~" and all; absolute. It need not exist.
std::filesystem::path keeper_directory(const std::string& written);

// What a keeper logs, in the folder of a run's logs.
inline constexpr const char* kKeeperLog = "keeper.log";

// Where the files of a run are on a host, below the keeper's directory: the same for every
// generation of the run, and another for every run.
std::filesystem::path host_run_directory(const std::filesystem::path& directory,
                                         const std::string& run_name, const net::RunId& run);

// Keeps a host for one generation of a run: dials the launcher, starts processes as it is told, and
// says what becomes of them. Returns when the launcher lets it go, or has not been heard of for
// job.hold seconds; then no process that it started is left. Logs to spdlog's default logger.
base::ExitCode run_keeper(const hosts::KeeperJob& job);

}  // namespace strait::agent
