#pragma once

#include "launcher/recipe/recipe.h"
#include "models/model_description.h"

namespace strait::plan {

struct Plan;

// A layout among which "auto" chose, with the settings that it runs fastest with.
struct Layout {
  std::int64_t stages = 1;
  std::int64_t replicas = 1;
  std::vector<std::string> hosts;  // of the processes, by replica, then stage
  double step_seconds = 0;         // forecast, the mean of the run, with the sync of replicas
  std::vector<models::LayerRange> layers;  // of the first chunk of each stage
  std::string schedule;
  std::int64_t depth = 0;
  std::int64_t micro_batch = 0;  // rows
  bool recomputes = false;
  std::string limit;  // what its step takes longest for: "link a > b", "compute of a"
};

// The hosts of a recipe: its list, or this machine.
std::vector<recipe::RecipeHost> hosts_of(const recipe::Recipe& recipe);

// Assigns processes to hosts in the given order. Returns the host index of each process; processes
// are counted by replica, then by stage. A host gets as many processes as it has slots. Hosts
// without slots share the rest evenly, and the first ones get one more. Pure. UserError: fewer
// slots than processes.
std::vector<std::size_t> assign_hosts(const std::vector<recipe::RecipeHost>& hosts,
                                      std::size_t processes);

// Ports that links to the processes of each host are bound to.
std::vector<std::int64_t> link_ports(const Plan& plan);

}  // namespace strait::plan
