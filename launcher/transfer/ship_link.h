#pragma once

#include <chrono>
#include <string>

#include "framework/net/link_options.h"

namespace strait::transfer {

// One end of a link between two porters. Of a launcher and a keeper the keeper dials; of two
// keepers the one of the greater name.
net::LinkOptions ship_link(const net::ProcessName& listens, const net::ProcessName& dials,
                           const net::ProcessName& peer, const std::string& peer_key,
                           std::chrono::seconds hold);

// Bytes a second of a setting in megabits a second.
double ship_rate(double megabits);

}  // namespace strait::transfer
