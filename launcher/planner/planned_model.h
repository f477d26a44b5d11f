#pragma once

#include "launcher/recipe/plan.h"
#include "launcher/recipe/recipe.h"
#include "models/model_config.h"
#include "models/model_description.h"

// Files of the Hugging Face directory that model.path names.
namespace strait::planner {

// Limit for files that configure a model or adapters.
inline constexpr std::uint64_t kMostConfigBytes = std::uint64_t{1} << 24;

// Why a folder that a recipe names lacks this file: "has no config.json", "is a file", "is no
// directory here (...)". Call it only if the file is missing.
std::string folder_fault(const std::filesystem::path& folder, const std::string& file);

// The text of config.json. `goes_on`: the run has begun, so its model cannot change. UserError: the
// file is missing; the message says how to get it.
std::string read_config(const std::filesystem::path& model, bool goes_on);

// The model's name on the Hugging Face hub, if the hub's cache that contains it, or its
// config.json, tells the name. Nullopt: unknown.
std::optional<std::string> model_hub_name(const std::filesystem::path& model,
                                          const std::string& config);

// UserError: a run would start from the model's weights, but none are in a form that can be read.
// The message says how to get them. Other faults of the files are found when they are read.
void check_has_weights(const recipe::Recipe::Model& source);

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
