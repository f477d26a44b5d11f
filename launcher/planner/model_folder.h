#pragma once

#include <filesystem>

#include "launcher/recipe/recipe.h"

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

}  // namespace strait::planner
