#pragma once

#include <atomic>
#include <filesystem>
#include <string>
#include <vector>

namespace strait::cli {

// A few prompts of the evaluation data with the trained model's completions and the expected ones.
// Empty where the data has no prompts, or the model does not fit here. Once `stops` is above 0 no
// further one is generated.
std::vector<std::string> sample_completions(const std::filesystem::path& run_directory,
                                            const std::atomic<int>& stops);

}  // namespace strait::cli
