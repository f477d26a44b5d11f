#pragma once

#include "launcher/recipe/links.h"
#include "launcher/recipe/recipe.h"

namespace strait::planner {

// Changes a recipe and its measured speeds as a sentence says:
//
//   link A B RATE [DELAY]   both directions of this link, as in "link a b 100Mbit/s 20ms"
//   without A               the host is not there
//   add D like A            a further host, which computes as A does and reaches A at A's best rate
//
// Rates may be written "100mbit". A layout that names a host which is gone is chosen again.
// UserError (bad_input): it is no such sentence, or names a host that is not listed.
void apply_what_if(const std::string& sentence, recipe::Recipe& recipe, recipe::LinkTable& speeds);

}  // namespace strait::planner
