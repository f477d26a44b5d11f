#pragma once

#include <ATen/core/ScalarType.h>

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>

namespace strait::cli {

struct ExportOptions {
  std::optional<at::ScalarType> type;         // absent: each tensor's own in the source
  bool merge = false;                         // of adapters: write the model with them added
  std::uint64_t shard_bytes = 5'000'000'000;  // a file holds at most this, or one tensor
};

// Writes a run's newest checkpoint as a Hugging Face directory: weights under the names and in the
// value types of the source's files, config.json, the source's tokenizer, template and generation
// files, and a README.md that says how the model was made. One tensor is in memory at a time. Of a
// run that trained adapters: a PEFT directory, unless they are to be merged.
// Returns a line for the user. UserError where the directory exists already or there is no
// checkpoint.
std::string export_model(const std::filesystem::path& run, const std::filesystem::path& directory,
                         const ExportOptions& options);

}  // namespace strait::cli
