#pragma once

#include <filesystem>
#include <string>
#include <vector>

namespace strait::app {

// A few prompts of the evaluation data with the trained model's completions and the expected ones.
// Empty where the data has no prompts, or the model does not fit here.
std::vector<std::string> sample_completions(const std::filesystem::path& run_directory);

}  // namespace strait::app
