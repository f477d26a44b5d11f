#pragma once

#include <optional>

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
  std::uint64_t seed = 1;   // selects the held-out records, and the rows for a weight such as 0.5
  bool evaluation = false;  // evaluation data, not training data; used in messages
  // Records are preferences; a row holds pairs of documents, the chosen answer before the rejected.
  bool preferences = false;
  // With `preferences`: each pair is an answer, and one to another prompt after its prompt.
  bool rated = false;
};

// Data files as the packed sequences that stages train on.
struct PreparedData {
  std::vector<DataFile> files;
  std::shared_ptr<const TokenFile> tokens;
  bool is_token_file = false;  // the data is one token file, which stages read directly
  // What made the tokens: "bytes" or the hash of a tokenizer. Empty: token files that do not say.
  std::string tokenizer = {};
  std::string tokenizer_name = {};        // "bytes", or the directory's name
  std::vector<std::string> notes = {};    // what happened to records, one sentence each
  std::vector<std::string> removed = {};  // from the cache, one sentence each
  bool cached = false;                    // read from the cache, nothing was tokenised
  bool preferences = false;               // as in the options
  bool rated = false;                     // as in the options

  std::string name() const { return paths_of(files); }  // for messages
};

struct PreparedSplit {
  PreparedData training;
  std::optional<PreparedData> held_out;  // set if options.hold_out > 0
};

// Decided by the file's name.
bool is_token_file(const std::filesystem::path& source);

// The tokenizer that a token file's metadata name; see PreparedData::tokenizer.
std::string recorded_tokenizer(const std::map<std::string, std::string>& metadata);
// The same for kByteTokenizer or for a directory in its present state.
std::string tokenizer_identity(const std::string& tokenizer, const TokenizerOpener& tokenizers);

// The files that these names stand for, with their weights. A name with *, ? or [] is a pattern:
// all files that it matches, in order. A directory is a data set: the files of records in it, or in
// its folder "data", that are called "train", or for evaluation "validation", else "test", perhaps
// with more after a - . or _. StoreError bad_input: there are none, or one is listed twice.
std::vector<DataFile> expanded_files(const std::vector<DataFile>& files, bool evaluation);

// Reads texts, JSONL, Parquet and token files, by expanded_files(). Texts become tokens, which are
// packed into rows file by file. Tokens of a tokenizer's directory are stored in the user's cache
// (token_cache.h) and read from there the next time. Writes nothing else, except unnamed files if
// more is packed than memory should hold. StoreError bad_input with file:line for input that cannot
// be used.
PreparedSplit read_split(const std::vector<DataFile>& files, const DataOptions& options,
                         const TokenizerOpener& tokenizers);
PreparedData read_data(const std::vector<DataFile>& files, DataOptions options,
                       const TokenizerOpener& tokenizers);

// The token file that stages read: the source itself, or `target`, which is written.
std::filesystem::path place_data(const PreparedData& data, const std::filesystem::path& target);
// The metadata of the token file.
std::map<std::string, std::string> metadata_of(const PreparedData& data);

}  // namespace strait::data
