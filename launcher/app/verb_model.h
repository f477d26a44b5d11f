#pragma once

#include <cstdint>
#include <filesystem>
#include <string>

#include "launcher/base/exit_code.h"

// What can be done with a trained run, in one process over all stages' shards.
namespace strait::app {

struct GenerateWords {
  std::filesystem::path run;
  std::string prompt;
  std::int64_t most_tokens = 128;
  double temperature = 0;
  std::int64_t top_k = 0;
  std::uint64_t seed = 1;
};

// `strait generate RUN --prompt TEXT`: prints what the model says.
base::ExitCode generate(const GenerateWords& words);

// `strait eval RUN [--data FILE]`: the loss over the recipe's evaluation data, or over a file.
base::ExitCode evaluate(const std::filesystem::path& run, const std::filesystem::path& data, bool json);

// `strait export RUN DIRECTORY`: a Hugging Face directory. Refuses one that is not empty.
base::ExitCode export_model(const std::filesystem::path& run, const std::filesystem::path& directory);

// `strait prepare DATA FILE --row N`: a token file of text or JSONL.
base::ExitCode prepare(const std::filesystem::path& data, const std::filesystem::path& file,
                 std::int64_t row);

}  // namespace strait::app
