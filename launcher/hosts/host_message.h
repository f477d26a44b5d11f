#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <variant>
#include <vector>

#include "framework/net/link.h"
#include "framework/net/process_name.h"
#include "launcher/base/control_error.h"
#include "launcher/base/exit_code.h"
#include "launcher/hosts/host_facts.h"

// What the launcher and the keeper of a host say to each other, over the service "keeper".
namespace strait::hosts {

// ---- keeper → launcher; KeeperHello first.

struct KeeperHello {
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

using KeeperMessage =
    std::variant<KeeperHello, ProcessStarted, ProcessRefused, ProcessEnded, LogText>;
using HostMessage = std::variant<StartProcess, EndProcess, Leave>;

net::Frame format(const KeeperMessage& message);
net::Frame format(const HostMessage& message);

// ControlError, as in control_message.h.
KeeperMessage parse_keeper_message(std::span<const std::byte> frame);
HostMessage parse_host_message(std::span<const std::byte> frame);

}  // namespace strait::hosts
