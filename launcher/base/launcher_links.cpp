#include "launcher/base/launcher_links.h"

#include "launcher/base/own_program.h"

namespace strait::base {
namespace {

net::LinkOptions link_of_build(const std::string& what, net::ProcessName process,
                               net::ProcessName peer, const std::string& peer_key,
                               std::chrono::seconds hold) {
  net::LinkOptions options;
  options.name = what + " " + process.text();
  options.peer = peer;
  options.peer_public_key = peer_key;
  options.terms = {{"build", build_id()}};
  options.hold = hold;
  return options;
}

}  // namespace

net::LinkOptions control_link(net::ProcessName process, net::ProcessName peer,
                              const std::string& peer_key, std::chrono::seconds hold) {
  return link_of_build("control", process, peer, peer_key, hold);
}

net::LinkOptions service_link(const std::string& service, net::ProcessName agent,
                              net::ProcessName peer, const std::string& peer_key,
                              std::chrono::seconds hold) {
  net::LinkOptions options = link_of_build(service, agent, peer, peer_key, hold);
  // HostAgents limits how long hosts may take, so the launcher's end waits for as long as a queue
  // may last. The agent's end is short, because the launcher listens before any agent starts.
  if (peer == agent) options.connect_limit = std::chrono::hours(24 * 8);
  if (peer == net::ProcessName::coordinator()) options.connect_limit = std::chrono::seconds(20);
  return options;
}

}  // namespace strait::base
