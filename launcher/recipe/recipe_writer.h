#pragma once

#include <string>

#include <nlohmann/json_fwd.hpp>

#include "launcher/recipe/recipe.h"

namespace strait::recipe {

// The resolved recipe, every key written out, in the order of the documentation. Both forms read
// back equal: parse_recipe(recipe_to_toml(r), …) == r and recipe_from_json(recipe_to_json(r), …) ==
// r for every r that the reader can return. JSON is the form that travels inside a plan.
std::string recipe_to_toml(const Recipe& recipe);
nlohmann::json recipe_to_json(const Recipe& recipe);

// UserError (bad_input) where the JSON is no recipe; `source` names it.
Recipe recipe_from_json(const nlohmann::json& json, const std::string& source);

// The reference page of all keys: a recipe with every default, each line with what is allowed and
// what it is for.
std::string recipe_reference();

}  // namespace strait::recipe
