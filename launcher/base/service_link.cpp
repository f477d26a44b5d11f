#include "launcher/base/service_link.h"

#include "launcher/base/build_id.h"

namespace strait::base {

net::LinkOptions service_link(const std::string& service, net::ProcessName agent,
                              net::ProcessName peer, const std::string& peer_key,
                              std::chrono::seconds hold) {
  net::LinkOptions options;
  options.name = service + " " + agent.text();
  options.peer = peer;
  options.peer_public_key = peer_key;
  options.terms = {{"build", base::build_id()}};
  options.hold = hold;
  // HostAgents limits how long hosts may take, so the launcher's end waits for as long as a queue
  // may last. The agent's end is short, because the launcher listens before any agent starts.
  if (peer == agent) options.connect_limit = std::chrono::hours(24 * 8);
  if (peer == net::ProcessName::coordinator()) options.connect_limit = std::chrono::seconds(20);
  return options;
}

}  // namespace strait::base
