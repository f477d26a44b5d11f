#pragma once

#include <chrono>
#include <string>

#include "framework/net/link_options.h"
#include "framework/net/process_name.h"

namespace strait::run {

// Options of the link between the coordinator and a stage process, for the end whose peer is
// `peer`. Both ends use these; a hello with another name or other terms is refused.
net::LinkOptions control_link(net::ProcessName process, net::ProcessName peer,
                              const std::string& peer_key, std::chrono::seconds hold);

}  // namespace strait::run
