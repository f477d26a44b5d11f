#pragma once

#include <cstddef>
#include <string>
#include <utility>
#include <vector>

#include "launcher/hosts/host_agents.h"
#include "launcher/hosts/host_facts.h"
#include "launcher/hosts/route.h"

namespace strait::hosts {

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
