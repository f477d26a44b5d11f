#pragma once

#include <fmt/format.h>

#include <type_traits>

#include "launcher/recipe/recipe_keys.h"

// Kinds of keys. `field_of` is a function from a Recipe (const or not) to a reference to the member
// that the key sets.
namespace strait::recipe::key_kinds {

// UTF-8 text without control characters, such as paths and names.
bool is_clean_text(const RecipeValue& value);
// A valid name for a Catalogue.
bool is_part_name(const RecipeValue& value);

// Not written where it has its default: recipes, and the hashes of runs, from before it stay equal.
RecipeKey written_if_set(RecipeKey key);

// Text; empty stands for absent.
template <class Field>
RecipeKey text(const std::string& name, Field field_of, const std::string& allowed,
               const std::string& help) {
  return {name,
          allowed,
          help,
          {},
          [field_of](const RecipeValue& value, Recipe& recipe) {
            const bool fits = is_clean_text(value);
            if (fits) {
              field_of(recipe) = value.get<std::string>();
            }
            return fits;
          },
          [field_of](const Recipe& recipe) {
            const std::string& field = field_of(recipe);
            return field.empty() ? RecipeValue() : RecipeValue(field);
          }};
}

template <class Field>
RecipeKey text_list(const std::string& name, Field field_of, const std::string& allowed,
                    const std::string& help) {
  return {name,
          allowed,
          help,
          {},
          [field_of](const RecipeValue& value, Recipe& recipe) {
            const bool fits = value.is_array() && !value.empty() && value.size() <= 4096 &&
                              std::ranges::all_of(value, is_clean_text);
            if (fits) {
              field_of(recipe) = value.get<std::vector<std::string>>();
            }
            return fits;
          },
          [field_of](const Recipe& recipe) {
            return field_of(recipe).empty() ? RecipeValue() : RecipeValue(field_of(recipe));
          }};
}

template <class Field>
RecipeKey flag(const std::string& name, Field field_of, const std::string& help) {
  return {name,
          "true or false",
          help,
          {},
          [field_of](const RecipeValue& value, Recipe& recipe) {
            if (value.is_boolean()) {
              field_of(recipe) = value.get<bool>();
            }
            return value.is_boolean();
          },
          [field_of](const Recipe& recipe) { return RecipeValue(field_of(recipe)); }};
}

// One name of an enumeration.
template <class Field>
RecipeKey choice(const std::string& name, Field field_of, const std::string& help) {
  using Enum = std::remove_reference_t<decltype(field_of(std::declval<Recipe&>()))>;
  const Names names = all_names(Enum{});
  return {name,
          fmt::format("one of \"{}\"", fmt::join(names, "\", \"")),
          help,
          {names.begin(), names.end()},
          [field_of, names](const RecipeValue& value, Recipe& recipe) {
            for (std::size_t i = 0; i < names.size(); ++i) {
              if (value == names[i]) {
                field_of(recipe) = static_cast<Enum>(i);
                return true;
              }
            }
            return false;
          },
          [field_of](const Recipe& recipe) { return RecipeValue(name_of(field_of(recipe))); }};
}

// The name of a part of this build or of a plugin. `more` are further names.
template <class Field>
RecipeKey part(const std::string& name, Field field_of, PartKind kind, const std::string& help,
               std::vector<std::string> more = {}) {
  RecipeKey key{name, {}, help, {}, {}, {}};
  key.set = [field_of](const RecipeValue& value, Recipe& recipe) {
    const bool fits = is_part_name(value);
    if (fits) {
      field_of(recipe) = value.get<std::string>();
    }
    return fits;
  };
  key.get = [field_of](const Recipe& recipe) {
    const std::string& field = field_of(recipe);
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
