#pragma once

#include <functional>
#include <map>
#include <string>
#include <string_view>

namespace strait::recipe {

// Where a recipe's keys were set, for sentences about them that can be said only when more is known
// than the recipe. No part of what it asks for: recipes that differ in it alone are equal.
struct RecipePlaces {
  std::map<std::string, std::string, std::less<>> by_key;  // "recipes/x.toml:31:9"

  // "the default" where it was not set.
  std::string of(std::string_view key) const {
    const auto found = by_key.find(key);
    return found == by_key.end() ? "the default" : found->second;
  }
  bool operator==(const RecipePlaces& /*other*/) const { return true; }
};

}  // namespace strait::recipe
