#pragma once

#include <cstdint>
#include <string>

#include "launcher/plan/plan.h"
#include "models/model_config.h"
#include "models/model_description.h"

namespace strait::planner {

// The model of a plan, with its adapters if it has any.
models::ModelConfig planned_model(const plan::Plan& plan);

// The loss of a guess among all tokens of the model: ln(vocabulary).
double guess_loss(const plan::Plan& plan);

// Bytes of a value of an activation.
std::int64_t value_bytes(const recipe::Recipe::Model& model);

// Makes the costs of layers those of this recipe: with recompute a layer keeps only its input, and
// its backward begins with another forward. Returns the bytes per token of the largest layer while
// it is recomputed, beyond what it keeps. Pure.
std::int64_t recompute_layers(const recipe::Recipe::Model& recipe, models::ModelDescription& model);

// The recipe with the settings of the adapter that it starts from. `config`: the text of the
// model's config.json. UserError if the adapter cannot be read, or the recipe has other settings of
// its own.
recipe::Recipe with_adapter_settings(recipe::Recipe recipe, const std::string& config);

// Where the adapter says that it belongs to a model of another name: asks whether that is meant,
// since tensors of equal shapes do not show it. Else empty. `config`: the text of the model's
// config.json.
std::string adapter_note(const recipe::Recipe::Model& model, const std::string& config);

}  // namespace strait::planner
