#pragma once

#include <chrono>
#include <filesystem>
#include <string>

#include "launcher/transfer/chunk_table.h"

namespace strait::transfer {

// Tables of files on this host, made once: a file whose stamp is the same is not read again. Lies
// beside the content; anything in it may be lost, and any number of processes may use it and be
// killed at any time: what they leave half-written goes with the next entry, and so does
// what was noted long ago.
class TableCache {
 public:
  static constexpr std::chrono::hours kKept{30 * 24};

  explicit TableCache(std::filesystem::path directory) : directory_(std::move(directory)) {}

  ChunkTable table(const std::filesystem::path& path) const;

 private:
  void write(const std::filesystem::path& entry, const std::string& text) const;

  std::filesystem::path directory_;
};

}  // namespace strait::transfer
