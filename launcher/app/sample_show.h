#pragma once

#include <filesystem>
#include <string>
#include <vector>

namespace strait::app {

// A few prompts of the evaluation data, what the trained model says to them, and what was expected:
// a glance that shows whether a run has learnt its task. Empty where the data has no prompts.
std::vector<std::string> show_samples(const std::filesystem::path& run_directory);

}  // namespace strait::app
