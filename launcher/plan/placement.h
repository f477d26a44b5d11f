#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "launcher/recipe/recipe.h"

namespace strait::plan {

struct Plan;

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
