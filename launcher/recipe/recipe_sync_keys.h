#pragma once

#include "framework/sync/sync_settings.h"
#include "launcher/recipe/recipe.h"

namespace strait::recipe {

// The method that chooses by forecast, and the default.
inline constexpr const char* kAutomaticSync = "auto";
inline constexpr const char* kDefaultSync = sync::kDefaultMethod;

// The method of a recipe; empty with one replica.
std::string sync_method_of(const Recipe& recipe);

// The keys that this method reads, as [sync] has them, beside "method". Those of "auto" are the
// three of a strength (sync::Strength), which it chooses if they are not set.
std::vector<std::string> keys_read_by(std::string_view method);

// Why this key ("sync.rank") must not be set in this recipe: the end of a sentence that starts with
// "sync.rank is 3 (origin), ". Empty: it can be set.
std::string sync_objection(std::string_view key, const Recipe& recipe);

}  // namespace strait::recipe
