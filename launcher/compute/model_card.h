#pragma once

#include "launcher/compute/ask_model.h"

namespace strait::compute {

// README.md of an exported model, or with `adapter` of adapters alone: the head that the Hugging
// Face hub reads, what it was trained from and on, its losses by the files of the run, and the
// recipe. No path of this machine is in it.
std::string model_card(const RunCheckpoint& source, const std::filesystem::path& run, bool adapter);

// What others know the model by that a run began with: its name on the hub, else that of its
// directory.
std::string base_name(const plan::Plan& plan);

// Where the weights came from: "random weights", "its weights", "weights of the run `a`, step-20".
std::string weights_text(const recipe::Recipe::Model& model);

}  // namespace strait::compute
