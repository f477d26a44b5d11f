#pragma once

#include "framework/net/frame_memory.h"
#include "framework/net/identity.h"
#include "launcher/base/errors.h"
#include "launcher/hosts/file_request.h"
#include "launcher/hosts/host_facts.h"
#include "launcher/hosts/path_request.h"

namespace strait::hosts {

// Messages of kAgentService, between the launcher and the agent of a host. Each frame begins with a
// number: a request has one, and its one reply has the same. Other messages have the number 0.

using base::Failure;

// ---- agent → launcher; AgentHello first. Replies have types of their own, see below.

struct AgentHello {
  HostFacts facts;
};

// What a process has appended to its log since the last message, or that it has ended. All of its
// log comes before its end.
struct ProcessReport {
  net::ProcessName process;
  std::string log = {};
  std::optional<std::int64_t> code = {};    // it exited
  std::optional<std::int64_t> signal = {};  // it was killed
};

// Somebody on the host, or its system, has asked the agent to end.
struct Goodbye {
  bool now = false;  // it ends at once; else when the launcher says so, and its processes go on
};

// ---- launcher → agent: End, which is not answered, and requests. More are in path_request.h and
// file_request.h.

struct End {
  std::optional<net::ProcessName> process = {};  // SIGKILL; absent: all, and the agent itself
};

struct ProcessStarted {
  std::int64_t pid = 0;
};

struct StartProcess {
  using Reply = ProcessStarted;
  net::ProcessName process;
  std::string job;  // its stdin
};

using AgentMessage = std::variant<AgentHello, ProcessReport, Goodbye>;
using LauncherMessage = std::variant<End, StartProcess, OpenPort, TryPaths, MeasureFlow,
                                     MeasureCompute, JoinRelay, transfer::Stat, transfer::Fetch,
                                     transfer::Put, transfer::Prune, transfer::LinkWith>;

net::Frame format(const AgentMessage& message);
net::Frame format(const LauncherMessage& message);

// MessageError, as in control_message.h.
AgentMessage parse_agent_message(std::span<const std::byte> message);
LauncherMessage parse_launcher_message(std::span<const std::byte> message);

// The reply to a request. The text of a Failure does not name the host.
template <class Request>
using ReplyTo = std::variant<Failure, typename Request::Reply>;

// The message of a reply. Whoever has sent the request knows its type. Defined for the replies of
// all requests above.
template <class Reply>
struct ReplyFrame {
  using Either = std::variant<Failure, Reply>;
  static net::Frame format(const Either& reply);
  static Either parse(std::span<const std::byte> message);  // Failure: it is not such a reply
};

struct Numbered {
  std::uint64_t number = 0;
  std::span<const std::byte> message;  // points into the frame
};
net::Frame with_number(std::uint64_t number, const net::Frame& message);
Numbered take_number(std::span<const std::byte> frame);  // MessageError

}  // namespace strait::hosts
