#pragma once

#include <cstdint>

#include "launcher/recipe/recipe.h"
#include "schedules/schedule.h"

namespace strait::launcher {

// The schedule that a recipe names, checked at every depth that a plan of it may choose. UserError
// where it cannot be run, which only a plugin's can be.
const schedules::Schedule& plan_schedule(const Recipe& recipe, std::int64_t micro_batches);

}  // namespace strait::launcher
