#include "launcher/transfer/ship_link.h"

#include <fmt/format.h>

#include "launcher/hosts/service_link.h"

namespace strait::transfer {

net::LinkOptions ship_link(const net::ProcessName& listens, const net::ProcessName& dials,
                           const net::ProcessName& peer, const std::string& peer_key,
                           std::chrono::seconds hold) {
  const std::string name = listens == net::ProcessName::coordinator()
                               ? hosts::kShipService
                               : fmt::format("{} {}", hosts::kShipService, listens.text());
  net::LinkOptions options = hosts::service_link(name, dials, peer, peer_key, hold);
  // Small ones, so that a slow path still shows signs of life.
  options.chunk_bytes = std::uint64_t{128} << 10;
  // Stages compute while checkpoints go home. The launcher itself has nothing more urgent.
  const bool at_launcher = listens == net::ProcessName::coordinator() && peer == dials;
  options.priority = at_launcher ? net::Priority::foreground : net::Priority::background;
  return options;
}

double ship_rate(double megabits) { return megabits * 1e6 / 8; }

}  // namespace strait::transfer
