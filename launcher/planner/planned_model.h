#pragma once

#include "launcher/recipe/plan.h"
#include "models/model_config.h"
#include "models/model_description.h"

namespace strait::planner {

// The model of a plan, with its adapters if it has any.
models::ModelConfig planned_model(const plan::Plan& plan);

// The loss of guessing among all tokens of the model: ln(vocabulary).
double guess_loss(const plan::Plan& plan);

// Bytes per value of an activation.
std::int64_t value_bytes(const recipe::Recipe::Model& model);

// Changes the costs of layers if the recipe recomputes: a layer then keeps only its input, and its
// backward begins with another forward. Returns the bytes per token that the largest layer needs
// while it is recomputed, in addition to what it keeps. Pure.
std::int64_t recompute_layers(const recipe::Recipe::Model& recipe, models::ModelDescription& model);

// UserError: a pattern of train.rates matches no trained parameter, or two match the same.
void check_rates(const recipe::Recipe& recipe, const models::ModelDescription& model);

// The recipe with the settings of the adapter that it starts from. `config`: the text of the
// model's config.json. UserError: the adapter cannot be read, or the recipe sets other values.
recipe::Recipe with_adapter_settings(recipe::Recipe recipe, const std::string& config);

// If the adapter names another model as its base, a question whether this is intended, because
// equal shapes of tensors do not show it. Else empty. `config`: the text of the model's
// config.json.
std::string adapter_note(const recipe::Recipe::Model& model, const std::string& config);

}  // namespace strait::planner
