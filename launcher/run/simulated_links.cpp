#include "launcher/run/simulated_links.h"

namespace strait::run {

SimulatedLinks::SimulatedLinks(const recipe::Recipe& recipe)
    : conditions_(recipe.hosts.simulate),
      only_link_(recipe.hosts.simulate_link),
      seed_(static_cast<std::uint64_t>(recipe.seed)) {}

std::map<std::string, std::string> SimulatedLinks::redirect(
    std::map<std::string, std::string> endpoints) {
  if (!conditions_.any()) return endpoints;
  for (auto& [link, endpoint] : endpoints) {
    if (!only_link_.empty() && link != only_link_) continue;
    std::unique_ptr<net::SimulatedPath>& path = paths_[link];
    // Of a replica that rejoins the paths are there already.
    if (path == nullptr) {
      constexpr std::uint64_t kApart = 1'000'000;  // more than connections of a path
      path = std::make_unique<net::SimulatedPath>(conditions_, seed_ + kApart * paths_.size());
    }
    path->forward_to(endpoint);
    endpoint = path->endpoint();
  }
  return endpoints;
}

}  // namespace strait::run
