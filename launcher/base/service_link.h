#pragma once

#include <chrono>
#include <string>

#include "framework/net/link_options.h"
#include "framework/net/process_name.h"

namespace strait::base {

// A host's agent has a link with the launcher for each service, so that no service waits for
// another. The launcher listens for each at an endpoint of its own.
inline constexpr const char* kAgentService = "agent";    // processes and their logs
inline constexpr const char* kTransferService = "ship";  // files
inline constexpr const char* kReachService = "reach";    // paths between hosts, and their speed

// Options of such a link. Both ends use the same name.
net::LinkOptions service_link(const std::string& service, net::ProcessName agent,
                              net::ProcessName peer, const std::string& peer_key,
                              std::chrono::seconds hold);

}  // namespace strait::base
