#pragma once

#include <functional>

#include "launcher/planner/step_forecast.h"
#include "launcher/recipe/plan.h"
#include "models/model_description.h"

// Training in slices of rows: `pipeline.slices`.
namespace strait::planner {

// UserError: the recipe states several slices, and this model trains whole rows.
void check_slices(const recipe::Recipe& recipe, const models::ModelDescription& model);

// Whether rows of this recipe and model may be trained in this number of slices.
bool may_slice(const recipe::Recipe& recipe, const models::ModelDescription& model,
               std::int64_t slices);

// `slices = "auto"`: what it may choose from, ascending. Only 1 where slices are impossible, and in
// a single stage, which waits for no other.
std::vector<std::int64_t> possible_slices(const recipe::Recipe& recipe,
                                          const models::ModelDescription& model);

// The first of these whose step is within 1 % of the shortest. 1: none fits. `step_seconds` is
// asked in their order, until more slices make no step clearly shorter; nullopt: does not fit into
// memory.
std::int64_t best_slices(
    const std::vector<std::int64_t>& possible,
    const std::function<std::optional<double>(std::int64_t slices)>& step_seconds);

// A pass of a slice has the fixed cost of any pass. Measured speeds include one for a micro-batch;
// these are the others, as tokens of a micro-batch.
std::int64_t slice_pass_tokens(const plan::Plan& plan);

// The costs of a slice instead of those of a micro-batch. An update stays, and so does latency.
StepCosts costs_of_a_slice(StepCosts costs);

// Bytes for each token of a micro-batch that its slices take for keys and values of each other.
// Whole rows: none.
struct SliceKeyBytes {
  std::int64_t held = 0;     // until the backward of the micro-batch
  std::int64_t working = 0;  // while it runs
};
SliceKeyBytes slice_key_bytes(const plan::Plan& plan, const models::ModelDescription& model,
                              const models::LayerRange& chunk);

}  // namespace strait::planner
