#pragma once

#include <string>
#include <vector>

#include "launcher/recipe/recipe.h"
#include "launcher/recipe/recipe_keys.h"

namespace strait::recipe {

// A key with its value as some recipe text had it. A table is found itself (with an object, whose
// content is not looked at) and its parts after it.
struct FoundValue {
  std::string key;    // "train.batch"
  RecipeValue value;  // null for what JSON has no word for
  std::string shown;  // the value as errors quote it
  std::string where;  // "recipes/x.toml:31:9", "--set train.batch=3"
};

// Whether names of parts (schedules, codecs, sync methods) have to be known: those that a user has
// just written do; a plan is also read where its plugins are not loaded, or not yet.
enum class PartNames { known, any };

// The one way into a Recipe, whatever form it was read from: later values win, defaults fill the
// rest, what does not fit together is found. UserError (bad_input) with all mistakes together.
Recipe assemble_recipe(const std::vector<FoundValue>& found, const std::string& source,
                       PartNames names = PartNames::known);

}  // namespace strait::recipe
