#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "launcher/transfer/chunk_table.h"

namespace strait::transfer {

struct ByteRange {
  std::uint64_t begin = 0;
  std::uint64_t end = 0;  // behind the last
};

struct ChunkRun {
  std::uint32_t first = 0;
  std::uint32_t count = 0;
  bool operator==(const ChunkRun&) const = default;
};

// Some of the chunks of a file.
class ChunkSet {
 public:
  explicit ChunkSet(std::uint32_t chunks = 0) : present_(chunks, false) {}
  static ChunkSet all(std::uint32_t chunks);
  // Those that hold a byte of the ranges; what lies behind the file's end is nothing.
  static ChunkSet holding(const ChunkTable& table, std::span<const ByteRange> ranges);

  std::uint32_t size() const { return static_cast<std::uint32_t>(present_.size()); }
  std::uint32_t count() const { return count_; }
  bool empty() const { return count_ == 0; }
  bool full() const { return count_ == size(); }
  bool contains(std::uint32_t chunk) const { return chunk < size() && present_[chunk]; }
  bool contains(const ChunkSet& others) const;

  void insert(std::uint32_t chunk);
  void erase(std::uint32_t chunk);
  void insert(const ChunkSet& others);
  void erase(const ChunkSet& others);
  bool insert(std::span<const ChunkRun> runs);  // false: one lies outside, and nothing was done

  std::vector<ChunkRun> runs() const;
  std::uint64_t bytes(const ChunkTable& table) const;
  bool operator==(const ChunkSet&) const = default;

 private:
  std::vector<bool> present_;
  std::uint32_t count_ = 0;
};

}  // namespace strait::transfer
