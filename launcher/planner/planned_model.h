#pragma once

#include "launcher/plan/plan.h"
#include "models/model_config.h"

namespace strait::planner {

// The model of a plan, with its adapters if it has any.
models::ModelConfig planned_model(const plan::Plan& plan);

// The recipe with the settings of the adapter that it starts from. UserError if that cannot be
// read, or the recipe has other settings of its own.
recipe::Recipe with_adapter_settings(recipe::Recipe recipe);

}  // namespace strait::planner
