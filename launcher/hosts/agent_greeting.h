#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace strait::hosts {

// The first thing that a host says on stdout when it is called over ssh, on one line behind a
// marker: what shells and login scripts print before it is passed over.
struct AgentGreeting {
  std::string build;       // of the program there
  std::string host_name;   // its own word for itself
  std::string caller;      // the address that it sees us at; empty: it does not know
  std::string reached;     // the address of its own that we came to
  std::int64_t clock = 0;  // seconds since 1970, by its own clock
};

// How the call ends: the keeper runs, or why it does not.
struct AgentAnswer {
  std::int64_t pid = 0;
  int code = 0;       // an ExitCode, where there is
  std::string error;  // one sentence without the host's name; empty: it runs
};

std::string to_line(const AgentGreeting& greeting);
std::string to_line(const AgentAnswer& answer);

// Nothing: the line is somebody else's.
std::optional<AgentGreeting> greeting_from(const std::string& line);
std::optional<AgentAnswer> answer_from(const std::string& line);

// "h0's clock is 7 minutes behind ...", where two clocks are more than five minutes apart; else
// empty. Nothing in a run depends on wall clocks, but logs and certificates do.
std::string clock_warning(const std::string& host, std::int64_t theirs, std::int64_t ours);

}  // namespace strait::hosts
