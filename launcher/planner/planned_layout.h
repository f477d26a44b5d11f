#pragma once

#include <cstdint>
#include <optional>

#include "launcher/plan/plan.h"
#include "launcher/planner/planned_pipeline.h"
#include "launcher/recipe/recipe.h"

namespace strait::planner {

// Rows of a micro-batch: from the recipe, else from the run that is resumed (its bits depend on
// them), else chosen by forecasts.
std::int64_t micro_batch_rows(const plan::Plan& plan, const PipelineQuestion& question);

// The recipe with "balanced" instead of "profile", which needs measured layers.
recipe::Recipe by_cost(recipe::Recipe recipe);

// Seconds of a step of this pipeline. Nullopt: there is none, usually because memory is too small.
std::optional<double> seconds_of_step(plan::Plan plan, const recipe::Recipe& resolved,
                                      const PipelineQuestion& question);

// Whether the recipe leaves stages or replicas to be chosen.
bool chooses_layout(const recipe::Recipe& recipe);

// Chooses stages and replicas where the recipe of `plan` says "auto", and with them the hosts of
// all processes, some of which may be left out, and their layers. Replaces "auto" in the plan's
// recipe by what was chosen, which is what a resume reads, and keeps the best layouts in
// `plan.layouts`. The plan has its data, hosts and speeds. UserError: no layout fits.
//
// placement::search() proposes layouts by a simple cost; the best ones are planned in full, and the
// shortest forecast step wins. Among steps of about the same length the one with fewer processes.
void plan_layout(plan::Plan& plan, const PipelineQuestion& question);

}  // namespace strait::planner
