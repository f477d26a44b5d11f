#pragma once

#include <chrono>
#include <filesystem>
#include <string>
#include <utility>

#include "launcher/transfer/chunk_table.h"

namespace strait::transfer {

// Chunk tables of files on this host: a file with the same stamp is not read again. Entries
// may be lost at any time. Any number of processes may use the directory and be killed at any
// time; the next write removes what they left incomplete, and entries older than kMaxAge.
class TableCache {
 public:
  static constexpr std::chrono::hours kMaxAge{30 * 24};

  explicit TableCache(std::filesystem::path directory) : directory_(std::move(directory)) {}

  // StoreError: the file cannot be read, or changed while it was read.
  ChunkTable table(const std::filesystem::path& path) const;

 private:
  void write(const std::filesystem::path& entry, const std::string& text) const;

  std::filesystem::path directory_;
};

}  // namespace strait::transfer
