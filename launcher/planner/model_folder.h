#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>

#include "launcher/recipe/recipe.h"

// The Hugging Face directory that model.path names.
namespace strait::planner {

// Of a file that configures a model or adapters.
inline constexpr std::uint64_t kMostConfigBytes = std::uint64_t{1} << 24;

// Why a folder that a recipe names does not have this file: "has no config.json", "is a file", "is
// no directory here (...)". Only where it has none.
std::string folder_fault(const std::filesystem::path& folder, const std::string& file);

// The text of its config.json. `goes_on`: of a run that has begun, whose model cannot be another
// one. UserError: there is none; says how to get one.
std::string read_config(const std::filesystem::path& model, bool goes_on);

// The model's name on the Hugging Face hub, as far as it is known: by the hub's cache, in which it
// lies, or by the text of its config.json. Nullopt: it is not.
std::optional<std::string> model_hub_name(const std::filesystem::path& model,
                                          const std::string& config);

// UserError: a run is to begin with its weights, and it has none in a form that is read; says how
// to get them. Other faults of the files are found when they are read.
void check_has_weights(const recipe::Recipe::Model& source);

}  // namespace strait::planner
