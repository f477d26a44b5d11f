#pragma once

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

// What keys of a recipe must be together, beyond what each may be alone. Each broken rule is one
// sentence, with where the keys are set. All functions are pure.

// Where each key was last set.
using Origins = std::map<std::string, std::string, std::less<>>;
using Mistakes = std::vector<std::string>;
// Where some of these keys are set, for "(recipes/x.toml:3:9)".
using OriginsOf = std::function<std::string(std::initializer_list<std::string_view>)>;

// `source`: the recipe as a whole, for keys that are not set.
void check_required(const Recipe& recipe, const std::string& source, const Origins& origins,
                    Mistakes& mistakes);
// Of a recipe whose values are each allowed.
void check_consistent(const Recipe& recipe, const std::string& source, const Origins& origins,
                      Mistakes& mistakes);
// The part of that for [pipeline].
void check_pipeline(const Recipe& recipe, const OriginsOf& at, Mistakes& mistakes);
// Keys of [sync] must be read by the recipe's method.
void check_sync(const std::vector<FoundValue>& found, const Recipe& recipe, Mistakes& mistakes);

}  // namespace strait::recipe
