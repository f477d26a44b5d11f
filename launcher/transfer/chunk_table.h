#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>

namespace strait::transfer {

// What a file is made of, so that any chunk of it can be fetched from anybody and proved on
// arrival. Files of one id have the same bytes, whatever they are called and wherever they lie.
struct ChunkTable {
  static constexpr std::uint64_t kChunkBytes = std::uint64_t{1} << 20;
  static constexpr std::uint32_t kMostChunks = std::uint32_t{1} << 22;  // of 4 TiB
  static constexpr std::size_t kDigits = 32;                            // of a hash, hexadecimal

  std::uint64_t size = 0;
  std::string whole;   // hash of all bytes, as manifests name it
  std::string chunks;  // hash of each chunk, one behind the other

  std::uint32_t count() const;  // of chunks; the last may be shorter
  std::uint64_t begin(std::uint32_t chunk) const { return chunk * kChunkBytes; }
  std::uint64_t bytes(std::uint32_t chunk) const;
  std::string_view hash(std::uint32_t chunk) const;
  bool proves(std::uint32_t chunk, std::span<const std::byte> content) const;

  std::string id() const;
  bool well_formed()
      const;  // of the form that read_chunk_table makes: what came from elsewhere may not be
  bool operator==(const ChunkTable&) const = default;
};

bool is_content_id(std::string_view text);

// Reads all of it. StoreError: it cannot be read, changes meanwhile, or is too large.
ChunkTable read_chunk_table(const std::filesystem::path& path);

}  // namespace strait::transfer
