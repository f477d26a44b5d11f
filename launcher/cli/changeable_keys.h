#pragma once

#include "launcher/recipe/recipe.h"

namespace strait::recipe {
struct RecipeKey;
}

// Which keys `resume --set` may change, and which bits each change gives up.
namespace strait::cli {

// A line each: the keys, and what a change of them gives up.
std::string changeable_keys();

std::vector<const recipe::RecipeKey*> changed_keys(const recipe::Recipe& before,
                                                   const recipe::Recipe& after);

// UserError: a resume cannot change one of these.
void check_may_change(const std::vector<const recipe::RecipeKey*>& keys);

// What these changes are, and what they give up, without secrets.
std::vector<std::string> change_lines(const recipe::Recipe& before, const recipe::Recipe& now,
                                      const std::vector<const recipe::RecipeKey*>& keys);

}  // namespace strait::cli
