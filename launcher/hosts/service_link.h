#pragma once

#include <chrono>
#include <string>

#include "framework/net/link_options.h"

namespace strait::hosts {

// A keeper has one link with the launcher for each service, so that none waits for another; the
// launcher listens for each at an endpoint of its own.
inline constexpr const char* kKeeperService = "keeper";  // processes and their logs
inline constexpr const char* kShipService = "ship";      // files
inline constexpr const char* kReachService = "reach";    // who can talk to whom, and how fast

// The options of such a link at either end; both call it the same.
net::LinkOptions service_link(const std::string& service, net::ProcessName keeper,
                              net::ProcessName peer, const std::string& peer_key,
                              std::chrono::seconds hold);

}  // namespace strait::hosts
