#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>

namespace strait::hosts {

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
