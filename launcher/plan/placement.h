#pragma once

#include <cstddef>
#include <vector>

#include "launcher/recipe/recipe.h"

namespace strait::plan {

// The hosts that a recipe speaks of: its list, this machine, or the nodes that Slurm will give.
std::vector<recipe::RecipeHost> hosts_of(const recipe::Recipe& recipe);

// On which host each process of a run is, as an index into hosts.list; processes are counted by
// replica, then by stage, and fill the hosts in the order given. A host takes as many as it has
// slots; those that state none share what is left evenly, the first ones one more. Pure.
//
// UserError: there are fewer slots than processes.
std::vector<std::size_t> place(const std::vector<recipe::RecipeHost>& hosts, std::size_t processes);

}  // namespace strait::plan
