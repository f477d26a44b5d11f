#include "launcher/recipe/placement.h"

#include "launcher/base/errors.h"
#include "launcher/base/text.h"
#include "launcher/recipe/plan.h"

namespace strait::plan {

std::vector<recipe::RecipeHost> hosts_of(const recipe::Recipe& recipe) {
  if (recipe.hosts.backend == recipe::BackendKind::local)
    return {recipe::RecipeHost{.name = "localhost"}};
  return recipe.hosts.list;
}

std::vector<std::size_t> assign_hosts(const std::vector<recipe::RecipeHost>& hosts,
                                      std::size_t processes) {
  std::size_t stated = 0;
  std::size_t without_slots = 0;
  for (const recipe::RecipeHost& host : hosts) {
    stated += static_cast<std::size_t>(host.slots.value_or(0));
    without_slots += host.slots ? 0U : 1U;
  }
  if (without_slots == 0 && stated < processes) {
    throw base::UserError(base::ExitCode::bad_input,
                          "hosts.list has {}, but the run has {} (stages times "
                          "replicas); give hosts more slots, or list more hosts",
                          base::counted(static_cast<std::int64_t>(stated), "slot"),
                          base::counted(static_cast<std::int64_t>(processes), "process", "es"));
  }
  std::size_t shared = processes - std::min(stated, processes);
  std::vector<std::size_t> assigned;
  for (std::size_t i = 0; i < hosts.size(); ++i) {
    std::size_t count = 0;
    if (hosts[i].slots) {
      count = static_cast<std::size_t>(*hosts[i].slots);
    } else {
      count = (shared + without_slots - 1) / without_slots;
      shared -= count;
      --without_slots;
    }
    assigned.insert(assigned.end(), std::min(count, processes - assigned.size()), i);
  }
  return assigned;
}

std::vector<std::int64_t> link_ports(const Plan& plan) {
  std::vector<std::int64_t> ports(plan.hosts.size());
  for (const Plan::Link& link : plan.links) ++ports.at(plan.process(link.listens).host_index);
  return ports;
}

}  // namespace strait::plan
