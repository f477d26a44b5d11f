#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <variant>
#include <vector>

#include "framework/net/link.h"
#include "framework/net/process_name.h"
#include "launcher/base/errors.h"
#include "launcher/hosts/host_facts.h"

namespace strait::hosts {

// Messages of kAgentService.

// ---- agent → launcher; AgentHello first.

struct AgentHello {
  HostFacts facts;
};

struct ProcessStarted {
  net::ProcessName process;
  std::int64_t pid = 0;
};

struct ProcessRefused {  // it could not be started
  net::ProcessName process;
  base::ExitCode code = base::ExitCode::internal;
  std::string text;
};

struct ProcessEnded {
  net::ProcessName process;
  std::optional<std::int64_t> code;    // it exited
  std::optional<std::int64_t> signal;  // it was killed
};

// What a process has appended to its log since the last message.
struct LogText {
  net::ProcessName process;
  std::string text;
};

// Somebody on the host, or its system, has asked the agent to end.
struct Goodbye {
  bool now = false;  // it ends at once; else when the launcher says Leave, and its processes go on
};

// ---- launcher → agent

struct StartProcess {
  net::ProcessName process;
  std::string job;  // its stdin
};

struct EndProcess {
  net::ProcessName process;
  bool kill = false;  // SIGKILL instead of SIGTERM
};

struct Leave {};  // end all processes and the agent itself

using AgentMessage =
    std::variant<AgentHello, ProcessStarted, ProcessRefused, ProcessEnded, LogText, Goodbye>;
using LauncherMessage = std::variant<StartProcess, EndProcess, Leave>;

net::Frame format(const AgentMessage& message);
net::Frame format(const LauncherMessage& message);

// MessageError, as in control_message.h.
AgentMessage parse_agent_message(std::span<const std::byte> frame);
LauncherMessage parse_launcher_message(std::span<const std::byte> frame);

}  // namespace strait::hosts
