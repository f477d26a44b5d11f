#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>

#include "framework/net/path_conditions.h"
#include "framework/net/simulated_path.h"
#include "launcher/recipe/recipe.h"

namespace strait::run {

// The links of a local run behave as the recipe's hosts.simulate says. One thread.
class SimulatedLinks {
 public:
  explicit SimulatedLinks(const recipe::Recipe& recipe);

  // Endpoints by link, as the listening stages report them -> endpoints to connect to.
  std::map<std::string, std::string> redirect(std::map<std::string, std::string> endpoints);

 private:
  net::PathConditions conditions_;
  std::string only_link_;                                             // empty: all
  std::uint64_t seed_;                                                // of what is random in them
  std::map<std::string, std::unique_ptr<net::SimulatedPath>> paths_;  // by link
};

}  // namespace strait::run
