#pragma once

#include <cstdint>

#include "launcher/recipe/recipe.h"
#include "schedules/schedule.h"

namespace strait::planner {

// Pieces of the model that every stage of a recipe holds: as it says, or as many as its ranges
// give, or as its schedule is used with.
std::int64_t chunks_of(const recipe::Recipe& recipe);

schedules::PipelineShape shape_of(const recipe::Recipe& recipe, std::int64_t micro_batches,
                                  std::int64_t depth);

// The schedule that a recipe names, checked at every depth that a plan of it may choose. UserError
// where it cannot be run: a plugin's, or one that knows no chunks.
const schedules::Schedule& plan_schedule(const recipe::Recipe& recipe, std::int64_t micro_batches);

}  // namespace strait::planner
