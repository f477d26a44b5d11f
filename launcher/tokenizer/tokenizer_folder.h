#pragma once

#include <filesystem>
#include <string>

namespace strait::tokenizer {

// The files of a tokenizer, by name: nothing of them is parsed here.
struct TokenizerFolder {
  std::filesystem::path directory;
  std::string hash;  // over the files that decide what tokens a record becomes
};

// Whether a directory has files of a tokenizer, in whatever form.
bool has_tokenizer(const std::filesystem::path& directory);

// StoreError bad_input: the directory has no tokenizer, or one of a form that this build cannot
// read; says what to do.
TokenizerFolder open_tokenizer(const std::filesystem::path& directory);

}  // namespace strait::tokenizer
