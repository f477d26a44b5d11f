#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "framework/sync/sync_settings.h"
#include "launcher/recipe/recipe_keys.h"

namespace strait::recipe {

// The keys of [sync]; recipe_keys.cpp puts them into its list. Their values are there (get) only
// where there are replicas, the recipe says anything of sync, and its method reads them.
std::vector<RecipeKey> sync_keys();

// What `method = "auto"` is called, and what is taken where a recipe names none.
inline constexpr const char* kAutomaticSync = "auto";
inline constexpr const char* kUsualSync = sync::kDefaultMethod;

// The method that a recipe asks for; empty where there is one replica.
std::string sync_method_of(const Recipe& recipe);

// The keys that this method reads, as [sync] has them, beside "method". Those of "auto" are the
// three of a strength (sync::Strength), which it chooses if they are not set.
std::vector<std::string> keys_read_by(std::string_view method);

// Why this key ("sync.rank") must not be set in this recipe, to follow "sync.rank is 3 (place), ";
// empty where it may.
std::string sync_objection(std::string_view key, const Recipe& recipe);

}  // namespace strait::recipe
