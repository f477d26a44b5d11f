#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>

#include "framework/data/record_reader.h"
#include "framework/data/token_file.h"
#include "launcher/planner/data_preparation.h"
#include "launcher/tokenizer/tokenizer_worker.h"

namespace strait::planner {

// The rows of one data file.
struct PackedFile {
  std::shared_ptr<const data::TokenFile> tokens;
  std::shared_ptr<const data::TokenFile> held_out;  // null: no record is
  std::string note;                                    // what became of records; empty: nothing
};

// Makes rows of the records of text and JSONL files, with one tokenizer process for all of them.
// One thread. `options` outlives it.
class FilePacker {
 public:
  explicit FilePacker(const DataOptions& options) : options_(options) {}

  // StoreError bad_input: what is wrong with a record; none is left.
  PackedFile pack(const std::filesystem::path& source);

 private:
  class Split;
  void pack_bytes(data::RecordReader& reader, Split& split) const;
  void pack_tokens(data::RecordReader& reader, Split& split);

  const DataOptions& options_;
  std::unique_ptr<tokenizer::TokenizerWorker> worker_;
};

}  // namespace strait::planner
