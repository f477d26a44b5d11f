#pragma once

#include <cstddef>
#include <string>
#include <utility>
#include <vector>

#include "launcher/hosts/host_facts.h"
#include "launcher/hosts/reach_client.h"
#include "launcher/hosts/route.h"

namespace strait::hosts {

// The addresses at which each host may be reached: the recipe's, or else all that it has, first the
// one that it reaches the launcher from.
std::vector<std::vector<std::string>> candidate_addresses(
    const std::vector<recipe::RecipeHost>& listed, const std::vector<HostFacts>& facts);

// Opens a port for probes on every host that has addresses, for as long as this lives.
class OpenPorts {
 public:
  OpenPorts(ReachClient& reach, const std::vector<std::vector<std::string>>& addresses);
  OpenPorts(const OpenPorts&) = delete;
  OpenPorts& operator=(const OpenPorts&) = delete;
  ~OpenPorts();

  const std::string& token() const { return token_; }
  const std::vector<std::vector<std::string>>& places() const { return places_; }   // by host
  const std::string& endpoint(std::size_t host, const std::string& address) const;  // one of them
  // What leads there: the host's interface with that address, or where it has none the address.
  const std::string& wire(std::size_t host, const std::string& address) const;
  // Of hosts that could not listen at an address, a sentence each.
  const std::vector<std::string>& troubles() const { return troubles_; }

 private:
  std::size_t index(std::size_t host, const std::string& address) const;

  ReachClient& reach_;
  std::string token_;
  std::vector<std::vector<std::string>> places_;
  std::vector<std::vector<std::string>> wires_;
  std::vector<std::string> troubles_;
};

// Tries every address of `to` from `from`, for all pairs at the same time, within seconds. Where
// several interfaces lead there, their speeds are compared, host against host as none is in two
// comparisons; two addresses of one interface are as fast as each other.
std::vector<PathProbe> probe_paths(ReachClient& reach, const OpenPorts& ports,
                                   const std::vector<std::pair<std::size_t, std::size_t>>& pairs);

using HostPair = std::pair<std::size_t, std::size_t>;  // the lower index first

// Every pair of so many hosts once, in as few rounds as there can be, so that no host is in two
// pairs of a round: measurements of a round do not disturb each other.
std::vector<std::vector<HostPair>> probe_rounds(std::size_t hosts);

}  // namespace strait::hosts
