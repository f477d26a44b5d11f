#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>

#include "framework/data/data_preparation.h"
#include "framework/data/record_reader.h"
#include "framework/data/token_file.h"
#include "framework/data/tokenizer.h"

namespace strait::data {

// The rows of one data file.
struct PackedFile {
  std::shared_ptr<const TokenFile> tokens;
  std::shared_ptr<const TokenFile> held_out;  // null: no record is held out
  std::string note;                           // what happened to records; empty: nothing to report
};

// Packs the records of text and JSONL files into rows, with one tokenizer for all files.
// One thread. Both arguments outlive it.
class FilePacker {
 public:
  FilePacker(const DataOptions& options, const TokenizerOpener& tokenizers)
      : options_(options), tokenizers_(tokenizers) {}

  // StoreError bad_input: a record is invalid, or no record is left.
  PackedFile pack(const std::filesystem::path& source);

 private:
  class Split;
  void pack_bytes(RecordReader& reader, Split& split) const;
  void pack_tokens(RecordReader& reader, Split& split);

  const DataOptions& options_;
  const TokenizerOpener& tokenizers_;
  std::unique_ptr<Tokenizer> tokenizer_;
};

}  // namespace strait::data
