#include "launcher/plan/placement.h"

#include <algorithm>
#include <cstdint>

#include <fmt/format.h>

#include "launcher/base/errors.h"

namespace strait::plan {

std::vector<recipe::RecipeHost> hosts_of(const recipe::Recipe& recipe) {
  if (recipe.hosts.backend == recipe::BackendKind::local) return {recipe::RecipeHost{.name = "localhost"}};
  if (recipe.hosts.backend != recipe::BackendKind::slurm) return recipe.hosts.list;
  const std::int64_t slots = recipe.hosts.slurm.stages_per_node;
  const std::int64_t processes = recipe.pipeline.stages * recipe.pipeline.replicas;
  std::vector<recipe::RecipeHost> nodes;
  for (std::int64_t node = 0; node * slots < processes; ++node) {
    nodes.push_back({.name = fmt::format("node {}", node), .slots = slots});
  }
  return nodes;
}

std::vector<std::size_t> place(const std::vector<recipe::RecipeHost>& hosts, std::size_t processes) {
  std::size_t stated = 0;
  std::size_t open = 0;
  for (const recipe::RecipeHost& host : hosts) {
    stated += static_cast<std::size_t>(host.slots.value_or(0));
    open += host.slots ? 0U : 1U;
  }
  if (open == 0 && stated < processes) {
    throw base::UserError(
        base::ExitCode::bad_input,
        fmt::format("hosts.list has {} slots, but {} processes are to run (stages times "
                    "replicas); give hosts more slots, or list more hosts",
                    stated, processes));
  }
  std::size_t shared = processes - std::min(stated, processes);
  std::vector<std::size_t> places;
  for (std::size_t i = 0; i < hosts.size(); ++i) {
    std::size_t takes = 0;
    if (hosts[i].slots) {
      takes = static_cast<std::size_t>(*hosts[i].slots);
    } else {
      takes = (shared + open - 1) / open;
      shared -= takes;
      --open;
    }
    places.insert(places.end(), std::min(takes, processes - places.size()), i);
  }
  return places;
}

}  // namespace strait::plan
