#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "launcher/recipe/recipe.h"
#include "launcher/recipe/recipe_keys.h"

namespace strait::recipe {

// A key and its value in the text of a recipe. A table is found itself (with an object as its
// value, whose content is ignored), then its members.
struct FoundValue {
  std::string key;    // "train.batch"
  RecipeValue value;  // null where JSON has no equivalent
  std::string shown;  // the value for error messages
  std::string where;  // "recipes/x.toml:31:9", "--set train.batch=3"
};

// The value of hosts.list for a hostfile as MPI and DeepSpeed read it: "HOST slots=N" in each line,
// "#" before comments. Pure. UserError names the line of `source`.
RecipeValue hosts_in_hostfile(std::string_view text, const std::string& source);

// Whether names of parts (schedules, codecs, sync methods) have to be known. Those in a recipe do;
// a plan is also read where its plugins are not loaded.
enum class PartNames { known, any };

// Makes a Recipe from the values of any form: later values win, the rest are defaults, and values
// that contradict each other are refused. UserError (bad_input) with all mistakes.
Recipe assemble_recipe(const std::vector<FoundValue>& found, const std::string& source,
                       PartNames names = PartNames::known);

}  // namespace strait::recipe
