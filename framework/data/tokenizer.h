#pragma once

#include <filesystem>
#include <memory>
#include <optional>
#include <span>

#include "framework/data/packer.h"
#include "framework/data/record.h"

namespace strait::data {

inline constexpr const char* kByteTokenizer = "bytes";  // instead of a directory

// Turns records into documents, perhaps in another process. One thread.
class Tokenizer {
 public:
  static constexpr std::size_t kBatchBytes = 4 << 20;  // of records; what a caller gathers
  static constexpr std::size_t kAhead = 2;             // batches

  Tokenizer() = default;
  Tokenizer(const Tokenizer&) = delete;
  Tokenizer& operator=(const Tokenizer&) = delete;
  virtual ~Tokenizer() = default;

  // receive() returns one document for each record of the oldest batch, in order. The two are
  // separate, so that one batch is tokenised while the caller reads the next one: at most kAhead
  // batches are sent before the first of them is received.
  virtual void send(std::span<const Record> records, Targets targets) = 0;
  virtual std::vector<Document> receive() = 0;
  virtual std::size_t sent() const = 0;  // and not received

  // Whether a token follows texts and completions. What ends a chat's turn is its template's.
  virtual bool ends_records() const = 0;
};

// The records of a table in columns. One thread.
class TableReader {
 public:
  TableReader() = default;
  TableReader(const TableReader&) = delete;
  TableReader& operator=(const TableReader&) = delete;
  virtual ~TableReader() = default;

  virtual std::optional<std::string> next() = 0;  // as a line of JSONL; nothing: no more records
  virtual double share_read() const = 0;          // 0 to 1
};

// Opens the tokenizers of directories, and tables.
class TokenizerOpener {
 public:
  virtual ~TokenizerOpener() = default;

  // Hash of everything that decides which tokens a record becomes. StoreError bad_input: the
  // directory has no tokenizer that can be read.
  virtual std::string hash(const std::filesystem::path& directory) const = 0;
  virtual std::string program_hash() const = 0;  // of the tokenizer program
  virtual std::unique_ptr<Tokenizer> start(const std::filesystem::path& directory) const = 0;
  // Of a Parquet file. StoreError bad_input: it cannot be read.
  virtual std::unique_ptr<TableReader> open_table(const std::filesystem::path& file) const = 0;
};

// The tokenizer that needs no file: byte b is token b, and one further token ends a record.
struct ByteTokenizer {
  static constexpr std::int32_t kEnd = 256;

  static std::vector<std::int32_t> encode(std::string_view text);
  // End tokens and unknown tokens are skipped.
  static std::string decode(std::span<const std::int32_t> tokens);

  // The record's tokens and which of them are targets. Its end is a target. Only the last part of a
  // text has an end.
  static Document document(const Record& record);
};

}  // namespace strait::data
