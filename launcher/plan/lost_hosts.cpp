#include "launcher/plan/lost_hosts.h"

#include <algorithm>
#include <cstdint>
#include <map>
#include <utility>
#include <vector>

namespace strait::plan {
namespace {

void add_spare(recipe::Recipe::Hosts& hosts, recipe::RecipeHost lost) {
  lost.slots.reset();  // the spare host gets the slots of the host that it replaces
  hosts.spare.push_back(std::move(lost));
}

}  // namespace

std::vector<std::size_t> replacement_order(const Plan& plan, const std::set<std::uint32_t>& without,
                                           std::set<std::size_t> lost) {
  std::map<std::uint32_t, std::set<std::size_t>> missing;  // hosts, by replica
  for (const Plan::Process& process : plan.processes) {
    if (!lost.contains(process.host_index) || without.contains(process.name.replica)) continue;
    missing[process.name.replica].insert(process.host_index);
  }
  std::vector<std::size_t> order;
  while (!missing.empty()) {
    const auto next =
        std::ranges::min_element(missing, {}, [](const auto& one) { return one.second.size(); });
    for (const std::size_t host : std::set<std::size_t>(next->second)) {
      order.push_back(host);
      lost.erase(host);
      // The spare host also replaces this host for the other replicas that used it.
      for (auto& [replica, hosts] : missing) hosts.erase(host);
    }
    std::erase_if(missing, [](const auto& one) { return one.second.empty(); });
  }
  order.insert(order.end(), lost.begin(), lost.end());
  return order;
}

void replace_host(Plan& plan, std::size_t host, std::size_t spare) {
  recipe::Recipe::Hosts& hosts = plan.recipe.hosts;
  recipe::RecipeHost& place = hosts.list.at(host);
  recipe::RecipeHost next = hosts.spare.at(spare);
  next.slots = place.slots;
  hosts.spare.erase(hosts.spare.begin() + static_cast<std::ptrdiff_t>(spare));
  add_spare(hosts, std::exchange(place, std::move(next)));
  plan.hosts.at(host) = Plan::Host{place.name};
  for (Plan::Process& process : plan.processes) {
    if (process.host_index == host) process.host = place.name;
  }
}

std::optional<recipe::Recipe> recipe_without(const Plan& plan, const std::set<std::size_t>& lost) {
  recipe::Recipe recipe = plan.recipe;
  std::vector<recipe::RecipeHost> left;
  std::int64_t slots = 0;
  for (std::size_t i = 0; i < recipe.hosts.list.size(); ++i) {
    const recipe::RecipeHost& host = recipe.hosts.list[i];
    if (lost.contains(i)) {
      add_spare(recipe.hosts, host);
      continue;
    }
    slots += host.slots.value_or(std::ranges::count(plan.processes, i, &Plan::Process::host_index));
    left.push_back(host);
  }
  recipe.hosts.list = std::move(left);
  const std::int64_t stages = std::min(recipe.pipeline.stages, slots / recipe.pipeline.replicas);
  if (stages == 0) return std::nullopt;
  const bool ranges = recipe.pipeline.partition.kind == recipe::PartitionKind::ranges;
  // The recipe's ranges fit only the former number of stages.
  if (ranges && stages != recipe.pipeline.stages) recipe.pipeline.partition = {};
  recipe.pipeline.stages = stages;
  return recipe;
}

}  // namespace strait::plan
