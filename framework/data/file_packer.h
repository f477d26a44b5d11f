#pragma once

#include <array>

#include "framework/data/data_preparation.h"
#include "framework/data/packer.h"
#include "framework/data/record_reader.h"
#include "framework/data/token_file.h"
#include "framework/data/token_rows.h"
#include "framework/data/tokenizer.h"
#include "framework/file_descriptor.h"

namespace strait::data {

// Collects the rows of a token file. Up to `memory` bytes are held in memory; more go to unnamed
// files in `folder`, which vanish however the process ends. One thread.
class RowSpool {
 public:
  static constexpr std::size_t kMemory = std::size_t{64} << 20U;

  // `folder` is called when the rows exceed the memory.
  using Folder = std::function<std::filesystem::path()>;

  RowSpool(std::int64_t row_length, Folder folder, std::size_t memory = kMemory);

  // Each row once, in any order. StoreError: no room.
  void put(std::int64_t number, const PackedRow& row);

  // All rows; the spool is empty afterwards.
  RowTables finish();

 private:
  void spill();
  void write(std::size_t table, std::int64_t number, std::span<const std::byte> bytes);

  Folder find_folder_;
  std::filesystem::path folder_;  // set when rows are spilled
  std::size_t memory_;
  std::int64_t rows_ = 0;
  TokenRows held_;
  std::array<FileDescriptor, 3> files_;  // one per table; open when rows are spilled
};

// The rows of one data file.
struct PackedFile {
  std::shared_ptr<const TokenFile> tokens;
  std::shared_ptr<const TokenFile> held_out;  // null: no record is held out
  std::string note;                           // what happened to records; empty: nothing to report
};

// How far a file is packed.
struct Preparation {
  std::string file;
  std::int64_t records = 0;
  std::uint64_t tokens = 0;
  std::uint64_t bytes_read = 0;
  std::uint64_t bytes = 0;
  double seconds = 0;  // so far
};
// "reading train.jsonl: 12000 records, 3.1 M tokens, 12.3 of 98.1 MB (13 %), 41 s left".
std::string preparation_text(const Preparation& at);

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
  class Progress;
  void pack_bytes(RecordReader& reader, Split& split, Progress& progress) const;
  void pack_tokens(RecordReader& reader, Split& split, Progress& progress);

  const DataOptions& options_;
  const TokenizerOpener& tokenizers_;
  std::unique_ptr<Tokenizer> tokenizer_;
};

}  // namespace strait::data
