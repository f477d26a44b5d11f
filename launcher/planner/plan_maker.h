#pragma once

#include "framework/data/data_preparation.h"
#include "launcher/recipe/plan.h"
#include "launcher/recipe/recipe.h"

namespace strait::planner {

// A plan, and the data that was read to make it.
struct PlannedRun {
  plan::Plan plan;
  data::PreparedData train;
  std::optional<data::PreparedData> eval;
};

// Resolves a recipe: reads the model's config.json, the names and shapes in its weight files, and
// the data, and assigns layers and hosts. Starts nothing, and writes only what
// data::read_data() writes. UserError for everything that would stop the run later: not a model
// directory, tensors of other shapes, data that cannot be packed, more stages than layers, tokens
// outside of the vocabulary. `before`: the plan of the run that is resumed, if any; its choices
// stay if they fit, and its token files are the data. `speeds`: in place of those in hosts.links.
PlannedRun make_plan(const recipe::Recipe& recipe, const plan::Plan* before = nullptr,
                     const recipe::LinkTable* speeds = nullptr);

// The plan for asking the model: the first replica's stages on the same hosts. Data, other replicas
// and all links except boundaries are left out, as are hosts without a stage. Pure.
plan::Plan inference_plan(const plan::Plan& trained);

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
