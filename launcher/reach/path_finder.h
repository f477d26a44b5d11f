#pragma once

#include <string>
#include <utility>
#include <vector>

#include "launcher/host/host_facts.h"
#include "launcher/plan/plan.h"
#include "launcher/reach/reach.h"
#include "launcher/reach/route.h"

namespace strait::launcher {

// Where each host may be reached: the address that the recipe tells for it, or else all it has, the
// one that it reaches the launcher from first.
std::vector<std::vector<std::string>> candidate_addresses(const std::vector<RecipeHost>& told,
                                                          const std::vector<HostFacts>& facts);

// Ports that all hosts have opened to each other, for as long as this lives.
class OpenPorts {
 public:
  OpenPorts(Reach& reach, const std::vector<std::vector<std::string>>& addresses);
  OpenPorts(const OpenPorts&) = delete;
  OpenPorts& operator=(const OpenPorts&) = delete;
  ~OpenPorts();

  const std::string& token() const { return token_; }
  const std::vector<std::vector<std::string>>& places() const { return places_; }  // by host
  const std::string& place(std::size_t host, const std::string& address) const;    // one of them
  // Of hosts that could not listen at an address, a sentence each.
  const std::vector<std::string>& troubles() const { return troubles_; }

 private:
  Reach& reach_;
  std::string token_;
  std::vector<std::vector<std::string>> places_;
  std::vector<std::string> troubles_;
};

// Tries every address of `to` from `from`, for all pairs at the same time, within seconds. Where
// several addresses lead there, their speeds are compared.
std::vector<PathTry> try_paths(Reach& reach, const OpenPorts& ports,
                               const std::vector<std::pair<std::size_t, std::size_t>>& pairs);

}  // namespace strait::launcher
