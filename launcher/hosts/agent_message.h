#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <variant>
#include <vector>

#include "framework/net/link.h"
#include "framework/net/link_options.h"
#include "framework/net/process_name.h"
#include "launcher/base/errors.h"
#include "launcher/hosts/host_facts.h"

namespace strait::hosts {

// A keeper has one link with the launcher for each service, so that none waits for another; the
// launcher listens for each at an endpoint of its own.
inline constexpr const char* kAgentService = "keeper";  // processes and their logs
inline constexpr const char* kTransferService = "ship";      // files
inline constexpr const char* kReachService = "reach";    // who can talk to whom, and how fast

// The options of such a link at either end; both call it the same.
net::LinkOptions service_link(const std::string& service, net::ProcessName keeper,
                              net::ProcessName peer, const std::string& peer_key,
                              std::chrono::seconds hold);

// What the launcher and the keeper of a host say to each other, over the service "keeper".


// ---- keeper → launcher; AgentHello first.

struct AgentHello {
  HostFacts facts;
};

struct ProcessStarted {
  net::ProcessName process;
  std::int64_t pid = 0;
};

struct ProcessRefused {  // it could not even be started
  net::ProcessName process;
  base::ExitCode code = base::ExitCode::internal;
  std::string text;
};

struct ProcessEnded {
  net::ProcessName process;
  std::optional<std::int64_t> code;    // it left by itself
  std::optional<std::int64_t> signal;  // it was killed
};

// What a process has added to its log since the last time.
struct LogText {
  net::ProcessName process;
  std::string text;
};

// ---- launcher → keeper

struct StartProcess {
  net::ProcessName process;
  std::string job;  // what it gets on stdin
};

struct EndProcess {
  net::ProcessName process;
  bool kill = false;  // else it is asked to
};

struct Leave {};  // ends whatever still runs, and itself

using AgentMessage =
    std::variant<AgentHello, ProcessStarted, ProcessRefused, ProcessEnded, LogText>;
using LauncherMessage = std::variant<StartProcess, EndProcess, Leave>;

net::Frame format(const AgentMessage& message);
net::Frame format(const LauncherMessage& message);

// MessageError, as in control_message.h.
AgentMessage parse_agent_message(std::span<const std::byte> frame);
LauncherMessage parse_launcher_message(std::span<const std::byte> frame);

}  // namespace strait::hosts
