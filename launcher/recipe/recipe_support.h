#pragma once

#include <string>
#include <vector>

#include "launcher/recipe/recipe.h"

namespace strait::recipe {

// Recipes know more words than this build has features for. The list of what is missing is in
// recipe_support.cpp and nowhere else: whoever adds a feature deletes its line there.

// One sentence for each setting that this build cannot honour, and what it offers instead. Pure.
std::vector<std::string> unsupported_settings(const Recipe& recipe);

// Throws UserError (bad_input) with all of these sentences.
void check_supported(const Recipe& recipe);

}  // namespace strait::recipe
