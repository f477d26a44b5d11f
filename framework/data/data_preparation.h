#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "framework/data/packer.h"
#include "framework/data/record.h"
#include "framework/data/token_file.h"
#include "framework/data/tokenizer.h"

namespace strait::data {

// How text becomes rows.
struct DataOptions {
  PackOptions rows;
  std::string tokenizer = kByteTokenizer;  // or a directory
  Targets targets = Targets::assistant;
  double hold_out = 0;      // share of the records
  std::uint64_t seed = 1;   // of what is held out, and of the rows of a weight such as 0.5
  bool evaluation = false;  // not training; for messages
};

// Data files as the packed sequences that stages train on.
struct PreparedData {
  std::vector<DataFile> files;
  std::shared_ptr<const TokenFile> tokens;
  bool is_token_file = false;  // there is one file, and stages read it directly
  // What made the tokens: "bytes", a tokenizer's hash, or empty for token files that do not say.
  std::string tokenizer = {};
  std::string tokenizer_name = {};        // "bytes", or the directory's name
  std::vector<std::string> notes = {};    // what became of records, a sentence each
  std::vector<std::string> removed = {};  // of the cache, a sentence each
  bool cached = false;                    // nothing was tokenised

  std::string name() const { return paths_of(files); }  // for messages
};

struct PreparedSplit {
  PreparedData training;
  std::optional<PreparedData> held_out;  // if options say so
};

// By its name.
bool is_token_file(const std::filesystem::path& source);

// What a token file's metadata say about what made it; see PreparedData::tokenizer.
std::string recorded_tokenizer(const std::map<std::string, std::string>& metadata);
// The same of kByteTokenizer or a directory as it is now.
std::string tokenizer_identity(const std::string& tokenizer, const TokenizerOpener& tokenizers);

// Reads texts, JSONL and token files; text becomes tokens, packed into rows, file by file. Tokens
// of a tokenizer's directory are kept in the user's cache (token_cache.h) and read from there the
// next time; nothing else is written, but files without a name while more is packed than memory
// should hold. StoreError bad_input with file:line for what cannot be used.
PreparedSplit read_split(const std::vector<DataFile>& files, const DataOptions& options,
                         const TokenizerOpener& tokenizers);
PreparedData read_data(const std::vector<DataFile>& files, DataOptions options,
                       const TokenizerOpener& tokenizers);

// The token file for stages: the source itself, or `target`, which is written.
std::filesystem::path place_data(const PreparedData& data, const std::filesystem::path& target);
// What a token file says of its making.
std::map<std::string, std::string> metadata_of(const PreparedData& data);

}  // namespace strait::data
