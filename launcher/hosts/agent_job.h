#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "framework/net/curve_keys.h"
#include "framework/net/process_name.h"
#include "framework/net/run_id.h"

namespace strait::hosts {

// What a host's agent needs to join a run. It holds secrets: with it a process that reaches the
// launcher can join as this host, in this generation only. So it travels over stdin or in a file
// that only its owner can read.
struct AgentJob {
  net::RunId run;
  std::string run_name;
  std::uint32_t generation = 0;
  std::uint32_t host = 0;  // index into the plan's hosts
  std::string host_name;   // as the recipe names it
  std::string build;       // of the launcher
  net::CurveKeyPair keys;
  std::string launcher_key;
  std::map<std::string, std::string> endpoints;    // of the launcher, by service
  std::map<std::string, std::string> agent_keys;   // of all, by ProcessName::text()
  std::string directory;                           // for its files; "~" is its home
  std::map<std::string, std::string> environment;  // of the processes it starts
  std::string address;                 // where other hosts reach it; empty: found by the agent
  std::vector<std::int64_t> devices;   // that its processes share; empty: all
  std::pair<int, int> ports = {0, 0};  // that it may bind; 0: any
  std::int64_t hold = 120;             // seconds that it runs without contact to the launcher
  std::optional<double> up_megabits;   // limit of uploads
  std::optional<double> down_megabits;

  net::ProcessName name() const { return net::ProcessName::host_agent(host); }
};

std::string to_text(const AgentJob& job);
// UserError (mismatch) where the text is not a job of this build.
AgentJob parse_agent_job(const std::string& text);

// An agent's directory as an absolute path, with "~" replaced. It need not exist.
std::filesystem::path agent_directory(const std::string& written);

// The agent's log, in the folder of a run's logs.
inline constexpr const char* kAgentLog = "agent.log";

// The directory of a run on a host, below the agent's: the same for all generations of the run, and
// different for every run.
std::filesystem::path host_run_directory(const std::filesystem::path& directory,
                                         const std::string& run_name, const net::RunId& run);

}  // namespace strait::hosts
