#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "launcher/recipe/recipe_keys.h"

// Sizes as recipes write them: "512MiB", "4GiB", or bytes as a number.
namespace strait::recipe {

inline constexpr const char* kByteSizeWords = "a size such as \"512MiB\" or \"4GiB\"";

// Nothing where the value is no size.
std::optional<std::int64_t> parse_byte_size(const RecipeValue& value);
std::string format_byte_size(std::int64_t bytes);

}  // namespace strait::recipe
