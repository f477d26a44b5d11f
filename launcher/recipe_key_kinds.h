#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>

#include <fmt/format.h>

#include "launcher/recipe_keys.h"

// The kinds of keys that recipe_keys.cpp makes its list of. `place` is a function from a Recipe
// (const or not) to a reference to the field that the key is about.
namespace strait::launcher::key_kinds {

// Text without control characters, as paths and names are; empty stands for absent.
bool is_clean_text(const nlohmann::json& value);

template <class Place>
RecipeKey text(std::string name, Place place, std::string allowed, std::string help) {
  return {std::move(name),
          std::move(allowed),
          std::move(help),
          {},
          [place](const nlohmann::json& value, Recipe& recipe) {
            const bool fits = is_clean_text(value);
            if (fits) {
              place(recipe) = value.get<std::string>();
            }
            return fits;
          },
          [place](const Recipe& recipe) {
            const std::string& field = place(recipe);
            return field.empty() ? nlohmann::json() : nlohmann::json(field);
          }};
}

template <class Place>
RecipeKey flag(std::string name, Place place, std::string help) {
  return {std::move(name),
          "true or false",
          std::move(help),
          {},
          [place](const nlohmann::json& value, Recipe& recipe) {
            if (value.is_boolean()) {
              place(recipe) = value.get<bool>();
            }
            return value.is_boolean();
          },
          [place](const Recipe& recipe) { return nlohmann::json(place(recipe)); }};
}

struct IntegerRange {
  std::int64_t least;
  std::int64_t most;
  bool holds(const nlohmann::json& value) const {
    return value.is_number_integer() && !(value.is_number_unsigned() && value > most) &&
           value.get<std::int64_t>() >= least && value.get<std::int64_t>() <= most;
  }
};

// The field is an integer, or an optional one: then `absent` is the word for its absence ("auto"),
// and empty where only leaving the key out says so.
template <class Place>
RecipeKey integer(std::string name, Place place, IntegerRange range, std::string help,
                  std::string_view absent = {}) {
  RecipeKey key{std::move(name),
                fmt::format("an integer from {} to {}", range.least, range.most),
                std::move(help),
                {},
                {},
                {}};
  if (!absent.empty()) {
    key.allowed += fmt::format(" or \"{}\"", absent);
    key.words = {absent};
  }
  key.set = [place, range, absent](const nlohmann::json& value, Recipe& recipe) {
    if (range.holds(value)) {
      place(recipe) = value.get<std::int64_t>();
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
  key.get = [place, absent](const Recipe& recipe) {
    const auto& field = place(recipe);
    if constexpr (requires { field.has_value(); }) {
      const auto none = absent.empty() ? nlohmann::json() : nlohmann::json(absent);
      return field.has_value() ? nlohmann::json(*field) : none;
    } else {
      return nlohmann::json(field);
    }
  };
  return key;
}

struct NumberRange {
  double least;
  double most;
  bool holds(const nlohmann::json& value) const {
    return value.is_number() && value.get<double>() >= least && value.get<double>() <= most;
  }
};

template <class Place>
RecipeKey number(std::string name, Place place, NumberRange range, std::string help) {
  return {std::move(name),
          fmt::format("a number from {} to {}", range.least, range.most),
          std::move(help),
          {},
          [place, range](const nlohmann::json& value, Recipe& recipe) {
            const bool fits = range.holds(value);
            if (fits) {
              place(recipe) = value.get<double>();
            }
            return fits;
          },
          [place](const Recipe& recipe) { return nlohmann::json(place(recipe)); }};
}

template <class Place>
RecipeKey word(std::string name, Place place, std::string help) {
  using Word = std::remove_reference_t<decltype(place(std::declval<Recipe&>()))>;
  const Names names = all_names(Word{});
  return {std::move(name),
          fmt::format("one of \"{}\"", fmt::join(names, "\", \"")),
          std::move(help),
          {names.begin(), names.end()},
          [place, names](const nlohmann::json& value, Recipe& recipe) {
            for (std::size_t i = 0; i < names.size(); ++i) {
              if (value == names[i]) {
                place(recipe) = static_cast<Word>(i);
                return true;
              }
            }
            return false;
          },
          [place](const Recipe& recipe) { return nlohmann::json(name_of(place(recipe))); }};
}

}  // namespace strait::launcher::key_kinds
