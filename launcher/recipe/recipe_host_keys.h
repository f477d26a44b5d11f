#pragma once

#include <vector>

#include "launcher/recipe/recipe_keys.h"

namespace strait::recipe {

// The keys of [hosts], in the order of the documentation.
std::vector<RecipeKey> host_keys();

}  // namespace strait::recipe
