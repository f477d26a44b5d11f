#pragma once

#include <filesystem>

#include "launcher/recipe/recipe.h"

// Recipes as TOML and JSON.
namespace strait::recipe {

// ---- reading

using LoadPlugins = std::function<void(const std::vector<std::string>& files)>;

inline constexpr std::size_t kMostRecipeBytes = 1 << 20;

// Reads a TOML recipe. Safe for hostile input: at most kMostRecipeBytes, no deep nesting, nothing
// is executed. UserError (bad_input) lists all mistakes of the file and the overrides, a line each:
// where, what was found, what is allowed, and the nearest known name.
//
// overrides: "a.b=value", the arguments of --set; the value is read as TOML where it is TOML, else
// as a string. "a.b=" removes the key, or the table, so that its default counts. Where they change
// sync.method, or set one replica, the file's [sync] is ignored; train.steps replaces the file's
// train.epochs, and the other way round; with hosts.backend what only other backends take is
// ignored. `load` is called with the recipe's plugins before names of parts are checked; without
// it, names of plugins are unknown.
Recipe read_recipe(const std::filesystem::path& file, std::span<const std::string> overrides = {},
                   const LoadPlugins& load = {});
// The same for a text; `source` names it in errors.
Recipe parse_recipe(std::string_view text, const std::string& source,
                    std::span<const std::string> overrides = {}, const LoadPlugins& load = {});

// UserError (bad_input): the JSON is not a recipe. `source` names it in errors.
Recipe recipe_from_json(const nlohmann::json& json, const std::string& source);

// ---- writing

// All keys of a recipe, in the order of the documentation. Both forms read back equal:
// parse_recipe(recipe_to_toml(r), …) == r and recipe_from_json(recipe_to_json(r), …) == r. Plans
// contain the JSON form.
std::string recipe_to_toml(const Recipe& recipe);
nlohmann::json recipe_to_json(const Recipe& recipe);

// Without what may be secret, the variables of hosts: for what is shown, or sent to another host.
Recipe without_secrets(Recipe recipe);

// The reference page: a recipe with all defaults, each line with allowed values and help.
std::string recipe_reference();

}  // namespace strait::recipe
