#pragma once

#include "framework/net/identity.h"
#include "launcher/hosts/host_agents.h"
#include "launcher/hosts/host_facts.h"
#include "launcher/recipe/plan.h"

namespace strait::hosts {

// The result of a probe: whether host `from` reaches host `to` at one of its addresses.
struct PathProbe {
  std::size_t from = 0;
  std::size_t to = 0;
  std::string address;
  std::string problem;          // empty: it does
  double seconds = 0;           // of a round trip
  double bytes_per_second = 0;  // from there; 0: not measured
};

// How the two ends of a link connect.
struct LinkRoute {
  std::string link;
  net::ProcessName binds;  // the end that listens; the other connects
  std::string address;     // where
  bool relayed = false;    // over the launcher's host: neither end reaches the other
};

// The probes that a plan needs: pairs of hosts with a link between them, in both directions.
std::vector<std::pair<std::size_t, std::size_t>> paths_to_probe(const plan::Plan& plan);

// For every link of the plan, in its order. The end that listens by plan does so if the other
// reaches it; else the ends change roles; else the link is relayed. Of several addresses the
// fastest, then the one with the shortest round trip is taken. Links inside a host, and the ends of
// relayed ones, stay on loopback. Pure.
std::vector<LinkRoute> choose_routes(const plan::Plan& plan, const std::vector<PathProbe>& tries);

// The best path from one host to another; null: no address answered. If rates and times are about
// the same, the first address is taken.
const PathProbe* best_probe(const std::vector<PathProbe>& tries, std::size_t from, std::size_t to);

// A sentence for each host that no other reaches, with what to open.
std::vector<std::string> blocked_hosts(const plan::Plan& plan, const std::vector<PathProbe>& tries);

// Which links are relayed and what that costs; empty: none. `step_seconds`: forecast with the
// relay.
std::string relay_warning(const plan::Plan& plan, const std::vector<LinkRoute>& routes,
                          double step_seconds);

// The addresses at which each host may be reached: the recipe's, or else all that it has, first the
// one that it reaches the launcher from.
std::vector<std::vector<std::string>> candidate_addresses(
    const std::vector<recipe::RecipeHost>& listed, const std::vector<HostFacts>& facts);

// Opens ports for probes on every host that has addresses, for as long as this lives.
class OpenPorts {
 public:
  struct Address {
    std::string text;
    std::string interface;               // that has it; if that is not known, the text
    std::vector<std::string> endpoints;  // one per parallel link
  };

  // `links`: how many parallel links there can be from one host to another.
  OpenPorts(HostAgents& agents, const std::vector<std::vector<std::string>>& addresses,
            int links = 1);
  OpenPorts(const OpenPorts&) = delete;
  OpenPorts& operator=(const OpenPorts&) = delete;
  ~OpenPorts();

  const std::vector<Address>& addresses(std::size_t host) const { return addresses_.at(host); }
  const Address& address(std::size_t host, const std::string& text) const;
  // A sentence for each address at which a host could not listen.
  const std::vector<std::string>& problems() const { return problems_; }

 private:
  void add_addresses(std::size_t host, const PortOpened& opened);

  HostAgents& agents_;
  std::vector<std::vector<Address>> addresses_;  // by host
  std::vector<std::string> problems_;
};

// Tries every address of `to` from `from`, for all pairs at the same time, within seconds. If
// several interfaces of a host are reached, their speeds are compared; no host takes part in two
// comparisons at the same time. Two addresses of one interface are equally fast.
std::vector<PathProbe> probe_paths(HostAgents& agents, const OpenPorts& ports,
                                   const std::vector<std::pair<std::size_t, std::size_t>>& pairs);

using HostPair = std::pair<std::size_t, std::size_t>;  // the lower index first

// Every pair of n hosts once, in the fewest possible rounds. No host is in two pairs of a round, so
// that measurements of a round do not disturb each other.
std::vector<std::vector<HostPair>> probe_rounds(std::size_t hosts);

}  // namespace strait::hosts
