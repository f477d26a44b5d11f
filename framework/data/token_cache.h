#pragma once

#include "framework/data/file_packer.h"

namespace strait::data {

// A cache of the rows of data files, in tokens/ below $STRAIT_CACHE, else $XDG_CACHE_HOME/strait,
// else ~/.cache/strait. A file's name is a hash of everything that decides its content. Files are
// written completely or not at all, and contain a hash of their content. Byte tokens are not
// cached, because making them is as fast as reading them.
class TokenCache {
 public:
  // The cache of one data file.
  TokenCache(const std::filesystem::path& source, const DataOptions& options,
             const std::string& tokenizer_hash, const TokenizerOpener& tokenizers);

  // Nullopt: the rows are missing or incomplete.
  std::optional<PackedFile> read() const;

  // Errors such as a full disk are ignored, because they only cost time in the next preparation.
  // Then prunes the cache (prune_cache()), and returns its sentence.
  std::string write(const PackedFile& packed) const;

 private:
  std::filesystem::path file(const char* part) const;

  std::filesystem::path folder_;  // empty: no cache is used
  std::string source_;
  std::string key_;
  std::string tokenizer_hash_;
};

// Removes from a cache what was not used for 60 days, then the least recently used files while all
// take more than $STRAIT_CACHE_GB (default 20), and what killed processes left. Returns a sentence
// that says how much; empty: nothing. `kept` stays.
std::string prune_cache(const std::filesystem::path& folder, const std::string& kept);

// The folder of this name below $STRAIT_CACHE, else $XDG_CACHE_HOME/strait, else ~/.cache/strait;
// empty where the environment names no home.
std::filesystem::path cache_folder(const std::string& name);

// The directory for rows that do not fit into memory: that of the cache, else the one for temporary
// files.
std::filesystem::path spool_folder();

}  // namespace strait::data
