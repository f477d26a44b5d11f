#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "framework/store/packer.h"
#include "framework/store/record.h"
#include "framework/tensors/token_file.h"
#include "launcher/recipe/recipe.h"

namespace strait::planner {

// How text becomes rows.
struct DataOptions {
  std::int64_t row = 128;
  std::string tokenizer = "bytes";  // or a directory
  store::Targets targets = store::Targets::assistant;
  store::TooLong too_long = store::TooLong::refuse;
};

// A data file of a recipe as the packed sequences that stages train on.
struct PreparedData {
  std::filesystem::path source;
  std::shared_ptr<const tensors::TokenFile> tokens;
  bool is_token_file = false;  // the source is one: stages read it directly
  // What made the tokens: "bytes", a tokenizer's hash, or empty for a token file that does not say.
  std::string tokenizer = {};
  std::string tokenizer_name = {};  // "bytes", or the directory's name
  std::string note = {};            // what became of records that were too long; empty: none were
  bool cached = false;              // nothing was tokenised
};

// "bytes" or the directory of the recipe's tokenizer: the one that it names, else the model's own,
// else bytes.
std::string tokenizer_of(const recipe::Recipe& recipe);
DataOptions data_options(const recipe::Recipe& recipe);

// What a token file's metadata say about what made it; see PreparedData::tokenizer.
std::string recorded_tokenizer(const std::map<std::string, std::string>& metadata);
// The same of "bytes" or a directory as it is now.
std::string tokenizer_identity(const std::string& tokenizer);

// Reads text, JSONL or a token file; text becomes tokens, packed into rows. Tokens of a tokenizer's
// directory are kept in the user's cache (token_cache.h) and read from there the next time; nothing
// else is written. StoreError bad_input with file:line for what cannot be used.
PreparedData read_data(const std::filesystem::path& source, const DataOptions& options);

// The token file for stages: the source itself, or `target`, which is written.
std::filesystem::path place_data(const PreparedData& data, const std::filesystem::path& target);

}  // namespace strait::planner
