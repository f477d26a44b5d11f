#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include <nlohmann/json.hpp>

#include "launcher/recipe/recipe.h"

namespace strait::recipe {

// The neutral form of a value between the text of a recipe and its fields.
using RecipeValue = nlohmann::json;

// One key of a recipe: what it is called, what may stand there, where it goes. The list of all keys
// is the single source of the reader, the writer, the error texts and the reference page.
struct RecipeKey {
  std::string name;                     // "train.learning_rate"
  std::string allowed;                  // completes "must be …"
  std::string help;                     // half a sentence for the reference page
  std::vector<std::string_view> words;  // where words are allowed: all of them

  // Puts the value into the recipe; false, with the recipe unchanged, when it is not allowed.
  std::function<bool(const RecipeValue&, Recipe&)> set;
  // The value in the form that `set` takes; null where it is absent.
  std::function<RecipeValue(const Recipe&)> get;
  // What exactly `set` dislikes about a value, where `allowed` alone does not tell; empty: it does.
  std::function<std::string(const RecipeValue&)> objection = {};
  // Where words name parts that plugins can add to: all that there are now. `set` takes any word
  // that could be one of them, because a plan may be read before its plugins are loaded; `allowed`
  // and `words` are empty.
  std::function<std::vector<std::string>()> names = {};
};

// What completes "must be …" now.
std::string allowed_by(const RecipeKey& key);

// Every key, in the order of the documentation. A key whose name is also the beginning of others
// (model.lora) is a table that may be absent: its value is an object, its parts are keys of their
// own.
const std::vector<RecipeKey>& recipe_keys();

// The key of this name, or nullptr.
const RecipeKey* find_recipe_key(std::string_view name);

// Whether this is a table: "train", "model.lora".
bool is_recipe_section(std::string_view name);

// The part of a name before its last dot ("" for "seed"), and the part after it.
std::string_view section_of(std::string_view name);
std::string_view last_part_of(std::string_view name);

}  // namespace strait::recipe
