#pragma once

#include <map>
#include <string>
#include <vector>

#include "launcher/recipe/recipe.h"
#include "launcher/recipe/recipe_assembly.h"

// What keys of a recipe must be together, beyond what each may be alone. Each broken rule is one
// sentence, with where the keys are set. All functions are pure.
namespace strait::recipe {

// Where each key was last set.
using Origins = std::map<std::string, std::string, std::less<>>;
using Mistakes = std::vector<std::string>;

// `source`: the recipe as a whole, for keys that are not set.
void check_required(const Recipe& recipe, const std::string& source, const Origins& origins,
                    Mistakes& mistakes);
// Of a recipe whose values are each allowed.
void check_consistent(const Recipe& recipe, const std::string& source, const Origins& origins,
                      Mistakes& mistakes);
// Keys of [sync] must be read by the recipe's method.
void check_sync(const std::vector<FoundValue>& found, const Recipe& recipe, Mistakes& mistakes);

}  // namespace strait::recipe
