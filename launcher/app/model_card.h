#pragma once

#include <filesystem>
#include <string>

#include "launcher/app/whole_model.h"
#include "launcher/recipe/recipe.h"

namespace strait::app {

// README.md of an exported model: what it was trained from and on, its losses by the files of the
// run, and the recipe.
std::string model_card(const RunCheckpoint& source, const std::filesystem::path& run);

// Where the weights came from: "random weights", "its weights", "weights of the run `a`, step-20".
std::string weights_text(const recipe::Recipe::Model& model);

}  // namespace strait::app
