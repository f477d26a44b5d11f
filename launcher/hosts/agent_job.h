#pragma once

#include <filesystem>
#include <map>
#include <nlohmann/json_fwd.hpp>
#include <vector>

#include "framework/net/identity.h"

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
  std::string endpoint;                            // of the launcher
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

// The first line that a host prints when it is called over ssh, after a marker, so that output of
// shells and login scripts is skipped.
struct AgentGreeting {
  std::string build;       // of the program there
  std::string host_name;   // as it names itself
  std::string caller;      // the address that it sees us at; empty: unknown
  std::string reached;     // its own address that we connected to
  std::int64_t clock = 0;  // seconds since 1970, by its own clock
};

// The last line of a call: the agent runs, or an error.
struct AgentAnswer {
  std::int64_t pid = 0;
  int code = 0;       // an ExitCode, where there is
  std::string error;  // a sentence without the host's name; empty: it runs
};

// A line of a host: a marker, then JSON.
std::string marked_line(std::string_view marker, const nlohmann::json& value);
// The JSON after a marker. Login scripts may have printed text before it on the same line.
std::optional<nlohmann::json> json_after(std::string_view marker, const std::string& line);

std::string to_line(const AgentGreeting& greeting);
std::string to_line(const AgentAnswer& answer);

// nullopt: another line.
std::optional<AgentGreeting> greeting_from(const std::string& line);
std::optional<AgentAnswer> answer_from(const std::string& line);

// "the clock of h0 is 7 minutes behind this machine's ..." if the clocks differ by more than five
// minutes; else empty. Nothing in a run depends on wall clocks, but logs and certificates do.
std::string clock_warning(const std::string& host, std::int64_t theirs, std::int64_t ours);

}  // namespace strait::hosts
