#pragma once

#include "framework/net/frame_memory.h"
#include "framework/net/identity.h"
#include "launcher/base/errors.h"
#include "launcher/hosts/file_request.h"
#include "launcher/hosts/host_facts.h"
#include "launcher/hosts/path_request.h"

namespace strait::hosts {

// Messages of kAgentService, between the launcher and the agent of a host. A request has a number,
// and its one reply has the same number. Other messages have the number 0.

// ---- agent → launcher; AgentHello first.

struct AgentHello {
  HostFacts facts;
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

// ---- replies; more are in path_request.h and file_request.h. Failure, to any request: its text
// does not name the host.

struct ProcessStarted {
  std::int64_t pid = 0;
};

// ---- launcher → agent

struct EndProcess {  // SIGKILL; not answered
  net::ProcessName process;
};

struct Leave {};  // end all processes and the agent itself; not answered

// ---- requests; more are in path_request.h and file_request.h

struct StartProcess {
  net::ProcessName process;
  std::string job;  // its stdin
};

using base::Failure;
using transfer::Done;
using transfer::ListensAt;

using AgentMessage = std::variant<AgentHello, ProcessEnded, LogText, Goodbye, Failure, Done,
                                  ListensAt, ProcessStarted, PortOpened, PathsTried, FlowMeasured,
                                  ComputeMeasured, transfer::ChunkTable>;
using LauncherMessage =
    std::variant<EndProcess, Leave, StartProcess, OpenPort, TryPaths, SendFlow, ReceiveFlow,
                 MeasureCompute, DialRelay, BindRelay, transfer::Stat, transfer::Fetch,
                 transfer::Put, transfer::Prune, transfer::Rewind, transfer::Accept,
                 transfer::Connect>;

template <class Message>
struct Numbered {
  std::uint64_t number = 0;
  Message content;
};

net::Frame format(const AgentMessage& message, std::uint64_t number = 0);
net::Frame format(const LauncherMessage& message, std::uint64_t number = 0);

// MessageError, as in control_message.h.
Numbered<AgentMessage> parse_agent_message(std::span<const std::byte> frame);
Numbered<LauncherMessage> parse_launcher_message(std::span<const std::byte> frame);

}  // namespace strait::hosts
