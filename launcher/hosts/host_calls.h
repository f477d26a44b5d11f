#pragma once

#include <chrono>
#include <string>
#include <vector>

#include "launcher/recipe/recipe.h"

namespace strait::hosts {

// Calls all of these hosts over ssh at the same time, and starts nothing there. Returns for each
// why it cannot be used now; empty: it answers, with a program of this build.
std::vector<std::string> call_hosts(const recipe::Recipe::Hosts& settings,
                                    const std::vector<recipe::RecipeHost>& hosts,
                                    std::chrono::steady_clock::time_point deadline);

}  // namespace strait::hosts
