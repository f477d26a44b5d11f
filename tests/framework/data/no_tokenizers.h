#pragma once

#include "framework/data/tokenizer.h"

namespace strait::data {

// For texts, JSONL and tokens of bytes, which need no other process.
class NoTokenizers final : public TokenizerOpener {
 public:
  std::string hash(const std::filesystem::path& /*directory*/) const override { return ""; }
  std::string program_hash() const override { return ""; }
  std::unique_ptr<Tokenizer> start(const std::filesystem::path& /*directory*/) const override {
    return nullptr;
  }
  std::unique_ptr<TableReader> open_table(const std::filesystem::path& /*file*/) const override {
    return nullptr;
  }
};

}  // namespace strait::data
