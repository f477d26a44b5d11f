#pragma once

#include "framework/net/identity.h"
#include "framework/net/link_options.h"

// Options of the launcher's links, for the end whose peer is `peer`. Both ends use these: a hello
// with another name, or of another build, is refused.
namespace strait::base {

// Between the coordinator and a stage process.
net::LinkOptions control_link(net::ProcessName process, net::ProcessName peer,
                              const std::string& peer_key, std::chrono::seconds hold);

// A host's agent has two links with the launcher, at one endpoint, so that requests do not wait for
// the bytes of files.
inline constexpr const char* kAgentService = "agent";    // requests, processes and their logs
inline constexpr const char* kTransferService = "ship";  // the bytes of files
inline constexpr const char* kJoinService = "join";      // hosts that join by themselves

net::LinkOptions service_link(const std::string& service, net::ProcessName agent,
                              net::ProcessName peer, const std::string& peer_key,
                              std::chrono::seconds hold);

}  // namespace strait::base
