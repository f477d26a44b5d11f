#pragma once

#include <filesystem>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "launcher/recipe/recipe.h"

namespace strait::recipe {

// TOML to Recipe: the only file that knows TOML. Pure but for reading the file; safe on hostile
// input (at most kMostRecipeBytes, no deep nesting, nothing is executed). A failure is one
// UserError (bad_input) that lists every mistake of the file and of the overrides, a line each:
// where, what was found, what is allowed, and the nearest known name.
//
// overrides: "a.b=value" as given to --set; the value is read as TOML where it is TOML, else as a
// string. They are errors under their own name: "--set codec.forward_bits=9". Where they name
// another sync.method than the file, or one replica, the file's [sync] is left aside.
// `load` is called with the recipe's plugins before names of parts are looked at; where it is not
// given, plugins' names are unknown ones.
// What is read may still ask for what this build does not have: see recipe_support.h.
inline constexpr std::size_t kMostRecipeBytes = 1 << 20;

// The same for text at hand; `source` is its name in errors.
using LoadPlugins = std::function<void(const std::vector<std::string>& files)>;

Recipe read_recipe(const std::filesystem::path& file, std::span<const std::string> overrides = {},
                   const LoadPlugins& load = {});
Recipe parse_recipe(std::string_view text, const std::string& source,
                    std::span<const std::string> overrides = {}, const LoadPlugins& load = {});

}  // namespace strait::recipe
