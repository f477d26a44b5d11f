#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <vector>

#include "framework/fields/bounded_json.h"
#include "framework/fields/fields.h"

namespace strait::transfer {

// The hashes of a file and of each of its chunks. With the table any chunk can be fetched from any
// source and verified on arrival. Files with the same id have the same bytes, whatever their paths
// are.
struct ChunkTable {
  static constexpr std::uint64_t kChunkBytes = std::uint64_t{1} << 20;
  static constexpr std::uint32_t kMostChunks = std::uint32_t{1} << 22;  // 4 TiB
  static constexpr std::size_t kDigits = 32;                            // of a hash, hexadecimal

  std::uint64_t size = 0;
  std::string whole;   // hash of all bytes, as in a checkpoint's manifest
  std::string chunks;  // hashes of the chunks, concatenated

  std::uint32_t count() const;  // of chunks; the last one may be shorter
  std::uint64_t begin(std::uint32_t chunk) const { return chunk * kChunkBytes; }
  std::uint64_t bytes(std::uint32_t chunk) const;
  std::string_view hash(std::uint32_t chunk) const;
  bool matches(std::uint32_t chunk, std::span<const std::byte> content) const;

  std::string id() const;
  // Whether read_chunk_table could have made it. Call it for a table from a peer.
  bool well_formed() const;
  bool operator==(const ChunkTable&) const = default;
};

bool is_content_id(std::string_view text);

// Reads the whole file. StoreError: it cannot be read or is too large.
ChunkTable read_chunk_table(const std::filesystem::path& path);

void describe(auto& f, fields::Is<ChunkTable> auto& m) {
  f("size", m.size), f("whole", m.whole), f("chunks", m.chunks);
}

// Identifies an unchanged file without reading it: while the stamp is the same, hashes that were
// computed before still hold. The time is the inode's ctime, which no program can set back.
struct FileStamp {
  std::uint64_t size = 0;
  std::uint64_t inode = 0;
  std::int64_t changed = 0;  // nanoseconds

  static FileStamp of(const std::filesystem::path& path);  // StoreError: no such file
  bool operator==(const FileStamp&) const = default;
};

void describe(auto& f, fields::Is<FileStamp> auto& m) {
  f("size", m.size), f("inode", m.inode), f("changed", m.changed);
}

// Of the JSON files that note a table, or which chunks of a file are present: 4 TiB have 128 MiB of
// hashes, and two million runs if every second chunk is present.
inline constexpr std::uint64_t kMostNoteText = std::uint64_t{256} << 20;
inline constexpr fields::JsonLimits kNoteLimits{.string_bytes = kMostNoteText,
                                                .values = std::size_t{1} << 24};

struct ByteRange {
  std::uint64_t begin = 0;
  std::uint64_t end = 0;  // exclusive
};

struct ChunkRun {
  std::uint32_t first = 0;
  std::uint32_t count = 0;
  bool operator==(const ChunkRun&) const = default;
};

void describe(auto& f, fields::Is<ChunkRun> auto& m) { f("first", m.first), f("count", m.count); }

// A set of chunks of one file.
class ChunkSet {
 public:
  explicit ChunkSet(std::uint32_t chunks = 0) : present_(chunks, false) {}
  static ChunkSet all(std::uint32_t chunks);
  // The chunks that contain a byte of the ranges. Bytes after the end of the file are ignored.
  static ChunkSet holding(const ChunkTable& table, std::span<const ByteRange> ranges);

  std::uint32_t size() const { return static_cast<std::uint32_t>(present_.size()); }
  std::uint32_t count() const { return count_; }
  bool empty() const { return count_ == 0; }
  bool contains(std::uint32_t chunk) const { return chunk < size() && present_[chunk]; }
  bool contains(const ChunkSet& others) const;

  void insert(std::uint32_t chunk);
  void erase(std::uint32_t chunk);
  void erase(const ChunkSet& others);
  bool insert(std::span<const ChunkRun> runs);  // false: a run is out of range; nothing changed

  std::vector<ChunkRun> runs() const;
  std::uint64_t bytes(const ChunkTable& table) const;
  bool operator==(const ChunkSet&) const = default;

 private:
  std::vector<bool> present_;
  std::uint32_t count_ = 0;
};

}  // namespace strait::transfer
