#pragma once

#include <filesystem>
#include <optional>
#include <string>

#include "framework/data/file_packer.h"

namespace strait::data {

// Rows of data files that were made before, in $STRAIT_CACHE, else $XDG_CACHE_HOME/strait, else
// ~/.cache/strait, below tokens/. A file's name is the hash of all that decides its content; files
// are written whole or not at all, and hold a hash of their content. Byte tokens are not kept:
// making them takes no longer than reading them.
class TokenCache {
 public:
  // Of one data file.
  TokenCache(const std::filesystem::path& source, const DataOptions& options,
             const std::string& tokenizer_hash, const TokenizerOpener& tokenizers);

  // Nothing: it is not there, or not whole.
  std::optional<PackedFile> read() const;

  // A disk that refuses or is full only costs the next preparation. Then removes what the rule of
  // prune_cache() says, and returns its sentence.
  std::string write(const PackedFile& packed) const;

 private:
  std::filesystem::path file(const char* part) const;

  std::filesystem::path folder_;  // empty: there is no cache
  std::string source_;
  std::string key_;
  std::string tokenizer_hash_;
};

// Removes from a cache what was not used for 60 days, then the files that were used longest ago
// while all take more than $STRAIT_CACHE_GB, 20 where it is not set; and what killed processes
// left. A sentence that says how much; empty: nothing. `kept` stays.
std::string prune_cache(const std::filesystem::path& folder, const std::string& kept);

// Where rows go that memory should not hold: the cache's directory, else that for temporary files.
std::filesystem::path spool_folder();

}  // namespace strait::data
