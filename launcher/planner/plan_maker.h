#pragma once

#include <optional>

#include "launcher/planner/data_preparation.h"
#include "launcher/plan/plan.h"
#include "launcher/recipe/recipe.h"

namespace strait::planner {

// A plan, and the data that was read to make it.
struct PlannedRun {
  plan::Plan plan;
  PreparedData train;
  std::optional<PreparedData> eval;
};

// Resolves a recipe: reads the model's config.json and the names and shapes in its weight files,
// the data, and cuts the model. Starts and writes nothing. UserError, one sentence, for everything
// that would stop the run later: a model directory that is none, tensors that do not fit, data that
// cannot be packed, more stages than layers, a token that the model does not know.
// `before` is the plan that a run goes on from, where it does: see plan_sync().
PlannedRun make_plan(const recipe::Recipe& recipe, const plan::Plan* before = nullptr);

}  // namespace strait::planner
