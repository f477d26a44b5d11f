#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "launcher/recipe/part_names.h"
#include "launcher/recipe/recipe_keys.h"

// The kinds of keys that recipe_keys.cpp makes its list of. `place` is a function from a Recipe
// (const or not) to a reference to the field that the key is about.
namespace strait::recipe::key_kinds {

// Text without control characters, as paths and names are; empty stands for absent.
bool is_clean_text(const RecipeValue& value);
// What a Catalogue takes for a name.
bool is_part_name(const RecipeValue& value);

template <class Place>
RecipeKey text(const std::string& name, Place place, const std::string& allowed,
               const std::string& help) {
  return {name,
          allowed,
          help,
          {},
          [place](const RecipeValue& value, Recipe& recipe) {
            const bool fits = is_clean_text(value);
            if (fits) {
              place(recipe) = value.get<std::string>();
            }
            return fits;
          },
          [place](const Recipe& recipe) {
            const std::string& field = place(recipe);
            return field.empty() ? RecipeValue() : RecipeValue(field);
          }};
}

template <class Place>
RecipeKey text_list(const std::string& name, Place place, const std::string& allowed,
                    const std::string& help) {
  return {name,
          allowed,
          help,
          {},
          [place](const RecipeValue& value, Recipe& recipe) {
            const bool fits = value.is_array() && !value.empty() && value.size() <= 4096 &&
                              std::ranges::all_of(value, is_clean_text);
            if (fits) {
              place(recipe) = value.get<std::vector<std::string>>();
            }
            return fits;
          },
          [place](const Recipe& recipe) {
            return place(recipe).empty() ? RecipeValue() : RecipeValue(place(recipe));
          }};
}

template <class Place>
RecipeKey flag(const std::string& name, Place place, const std::string& help) {
  return {name,
          "true or false",
          help,
          {},
          [place](const RecipeValue& value, Recipe& recipe) {
            if (value.is_boolean()) {
              place(recipe) = value.get<bool>();
            }
            return value.is_boolean();
          },
          [place](const Recipe& recipe) { return RecipeValue(place(recipe)); }};
}

template <class Place>
RecipeKey word(const std::string& name, Place place, const std::string& help) {
  using Word = std::remove_reference_t<decltype(place(std::declval<Recipe&>()))>;
  const Names names = all_names(Word{});
  return {name,
          fmt::format("one of \"{}\"", fmt::join(names, "\", \"")),
          help,
          {names.begin(), names.end()},
          [place, names](const RecipeValue& value, Recipe& recipe) {
            for (std::size_t i = 0; i < names.size(); ++i) {
              if (value == names[i]) {
                place(recipe) = static_cast<Word>(i);
                return true;
              }
            }
            return false;
          },
          [place](const Recipe& recipe) { return RecipeValue(name_of(place(recipe))); }};
}

// A word that names a part of this build or of a plugin. `more` are further words.
template <class Place>
RecipeKey part(const std::string& name, Place place, PartKind kind, const std::string& help,
               std::vector<std::string> more = {}) {
  RecipeKey key{name, {}, help, {}, {}, {}};
  key.set = [place](const RecipeValue& value, Recipe& recipe) {
    const bool fits = is_part_name(value);
    if (fits) {
      place(recipe) = value.get<std::string>();
    }
    return fits;
  };
  key.get = [place](const Recipe& recipe) {
    const std::string& field = place(recipe);
    return field.empty() ? RecipeValue() : RecipeValue(field);
  };
  key.names = [kind, more = std::move(more)] {
    std::vector<std::string> names = part_names(kind);
    names.insert(names.end(), more.begin(), more.end());
    return names;
  };
  return key;
}

}  // namespace strait::recipe::key_kinds
