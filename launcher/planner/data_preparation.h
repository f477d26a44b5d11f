#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>

#include "framework/tensors/token_file.h"

namespace strait::planner {

// A data file of a recipe as the packed sequences that stages train on.
struct PreparedData {
  std::filesystem::path source;
  std::shared_ptr<const tensors::TokenFile> tokens;
  bool is_token_file = false;  // the source is one: stages read it directly
};

// Reads text, JSONL or a token file; text becomes byte tokens, packed into rows of `row` tokens.
// Writes nothing. StoreError bad_input with file:line for what cannot be used.
PreparedData read_data(const std::filesystem::path& source, std::int64_t row);

// The token file for stages: the source itself, or `target`, which is written.
std::filesystem::path place_data(const PreparedData& data, const std::filesystem::path& target);

}  // namespace strait::planner
