#include "launcher/hosts/service_link.h"

#include "launcher/base/build_id.h"

namespace strait::hosts {

net::LinkOptions service_link(const std::string& service, net::ProcessName keeper,
                              net::ProcessName peer, const std::string& peer_key,
                              std::chrono::seconds hold) {
  net::LinkOptions options;
  options.name = service + " " + keeper.text();
  options.peer = peer;
  options.peer_public_key = peer_key;
  options.terms = {{"build", base::build_id()}};
  options.hold = hold;
  // How long hosts may take to come is decided by who waits for all of them. The launcher listens
  // before any keeper knows of it.
  if (peer == keeper) options.connect_limit = std::chrono::hours(24 * 8);
  if (peer == net::ProcessName::coordinator()) options.connect_limit = std::chrono::seconds(20);
  return options;
}

}  // namespace strait::hosts
