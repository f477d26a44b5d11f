#pragma once

#include <fmt/format.h>

#include <type_traits>

#include "framework/name_pattern.h"
#include "launcher/recipe/recipe_keys.h"

namespace strait::recipe {

// Sizes in recipes: "512MiB", "4GiB", or a number of bytes.
inline constexpr const char* kByteSizeForm = "a size such as \"512MiB\" or \"4GiB\"";

// Nothing: the value is not a size.
std::optional<std::int64_t> parse_byte_size(const RecipeValue& value);
std::string format_byte_size(std::int64_t bytes);

}  // namespace strait::recipe

// Kinds of keys whose values are numbers; see key_kinds.h.
namespace strait::recipe::key_kinds {

// A number within a range. For an optional field, `absent` is the text that stands for no value
// ("auto"); empty: only leaving the key out does.
template <class Range, class Field>
RecipeKey ranged(const std::string& name, Field field_of, Range range, const std::string& help,
                 std::string_view absent) {
  using Value = decltype(Range::least);
  RecipeKey key{name, range.text(), help, {}, {}, {}};
  if (!absent.empty()) {
    key.allowed += fmt::format(" or \"{}\"", absent);
    key.choices = {absent};
  }
  key.set = [=](const RecipeValue& value, Recipe& recipe) {
    if (range.holds(value)) {
      field_of(recipe) = value.get<Value>();
      return true;
    }
    if constexpr (requires { field_of(recipe).reset(); }) {
      if (!absent.empty() && value == absent) {
        field_of(recipe).reset();
        return true;
      }
    }
    return false;
  };
  key.get = [=](const Recipe& recipe) {
    const auto& field = field_of(recipe);
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
  std::string text() const { return fmt::format("an integer from {} to {}", least, most); }
  bool holds(const RecipeValue& value) const {
    return value.is_number_integer() && !(value.is_number_unsigned() && value > most) &&
           value.get<std::int64_t>() >= least && value.get<std::int64_t>() <= most;
  }
};

template <class Field>
RecipeKey integer(const std::string& name, Field field_of, IntegerRange range,
                  const std::string& help, std::string_view absent = {}) {
  return ranged(name, field_of, range, help, absent);
}

struct NumberRange {
  double least;
  double most;
  std::string text() const { return fmt::format("a number from {} to {}", least, most); }
  bool holds(const RecipeValue& value) const {
    return value.is_number() && value.get<double>() >= least && value.get<double>() <= most;
  }
};

template <class Field>
RecipeKey number(const std::string& name, Field field_of, NumberRange range,
                 const std::string& help, std::string_view absent = {}) {
  return ranged(name, field_of, range, help, absent);
}

// A table of numbers by pattern.
template <class Range, class Field>
RecipeKey by_pattern(const std::string& name, Field field_of, Range range,
                     const std::string& help) {
  using Table = std::remove_cvref_t<decltype(field_of(std::declval<Recipe&>()))>;
  return {name,
          "a table from regular expressions to " + range.text(),
          help,
          {},
          [=](const RecipeValue& value, Recipe& recipe) {
            if (!value.is_object()) return false;
            for (const auto& [pattern, one] : value.items()) {
              if (!is_name_pattern(pattern) || !range.holds(one)) return false;
            }
            field_of(recipe) = value.template get<Table>();
            return true;
          },
          [=](const Recipe& recipe) {
            const Table& table = field_of(recipe);
            return table.empty() ? RecipeValue() : RecipeValue(table);
          }};
}

}  // namespace strait::recipe::key_kinds
