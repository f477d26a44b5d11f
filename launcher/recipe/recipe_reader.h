#pragma once

#include <filesystem>
#include <span>
#include <string>
#include <string_view>

#include "launcher/recipe/recipe.h"

namespace strait::launcher {

// TOML to Recipe: the only file that knows TOML. Pure but for reading the file; safe on hostile
// input (at most kMostRecipeBytes, no deep nesting, nothing is executed). A failure is one
// UserError (bad_input) that lists every mistake of the file and of the overrides, a line each:
// where, what was found, what is allowed, and the nearest known name.
//
// overrides: "a.b=value" as given to --set; the value is read as TOML where it is TOML, else as a
// string. They are errors under their own name: "--set codec.forward_bits=9". Where they name
// another sync.method than the file, or one replica, the file's [sync] is left aside.
// What is read may still ask for what this build does not have: see recipe_support.h.
inline constexpr std::size_t kMostRecipeBytes = 1 << 20;

Recipe read_recipe(const std::filesystem::path& file, std::span<const std::string> overrides = {});

// The same for text at hand; `source` is its name in errors.
Recipe parse_recipe(std::string_view text, const std::string& source,
                    std::span<const std::string> overrides = {});

}  // namespace strait::launcher
