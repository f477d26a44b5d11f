#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include <fmt/format.h>

#include "launcher/recipe/recipe_keys.h"

// The kinds of keys that take numbers; see recipe_key_kinds.h.
namespace strait::recipe::key_kinds {

// The field takes numbers of a range, or it is an optional one: then `absent` is the word for its
// absence ("auto"), and empty where only leaving the key out says so.
template <class Range, class Place>
RecipeKey ranged(const std::string& name, Place place, Range range, const std::string& help,
                 std::string_view absent) {
  using Value = decltype(Range::least);
  RecipeKey key{name, range.words(), help, {}, {}, {}};
  if (!absent.empty()) {
    key.allowed += fmt::format(" or \"{}\"", absent);
    key.words = {absent};
  }
  key.set = [=](const RecipeValue& value, Recipe& recipe) {
    if (range.holds(value)) {
      place(recipe) = value.get<Value>();
      return true;
    }
    if constexpr (requires { place(recipe).reset(); }) {
      if (!absent.empty() && value == absent) {
        place(recipe).reset();
        return true;
      }
    }
    return false;
  };
  key.get = [=](const Recipe& recipe) {
    const auto& field = place(recipe);
    if constexpr (requires { field.has_value(); }) {
      const auto none = absent.empty() ? RecipeValue() : RecipeValue(absent);
      return field.has_value() ? RecipeValue(*field) : none;
    } else {
      return RecipeValue(field);
    }
  };
  return key;
}

struct IntegerRange {
  std::int64_t least;
  std::int64_t most;
  std::string words() const { return fmt::format("an integer from {} to {}", least, most); }
  bool holds(const RecipeValue& value) const {
    return value.is_number_integer() && !(value.is_number_unsigned() && value > most) &&
           value.get<std::int64_t>() >= least && value.get<std::int64_t>() <= most;
  }
};

template <class Place>
RecipeKey integer(const std::string& name, Place place, IntegerRange range, const std::string& help,
                  std::string_view absent = {}) {
  return ranged(name, place, range, help, absent);
}

struct NumberRange {
  double least;
  double most;
  std::string words() const { return fmt::format("a number from {} to {}", least, most); }
  bool holds(const RecipeValue& value) const {
    return value.is_number() && value.get<double>() >= least && value.get<double>() <= most;
  }
};

template <class Place>
RecipeKey number(const std::string& name, Place place, NumberRange range, const std::string& help,
                 std::string_view absent = {}) {
  return ranged(name, place, range, help, absent);
}

}  // namespace strait::recipe::key_kinds
