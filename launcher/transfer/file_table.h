#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>

namespace strait::transfer {

// What a file is made of, so that any piece of it can be fetched from anybody and proved on
// arrival. Files of one id have the same bytes, whatever they are called and wherever they lie.
struct FileTable {
  static constexpr std::uint64_t kPieceBytes = std::uint64_t{1} << 20;
  static constexpr std::uint32_t kMostPieces = std::uint32_t{1} << 22;  // of 4 TiB
  static constexpr std::size_t kDigits = 32;                            // of a hash, hexadecimal

  std::uint64_t size = 0;
  std::string whole;   // hash of all bytes, as manifests name it
  std::string pieces;  // hash of each piece, one behind the other

  std::uint32_t count() const;  // of pieces; the last may be shorter
  std::uint64_t begin(std::uint32_t piece) const { return piece * kPieceBytes; }
  std::uint64_t bytes(std::uint32_t piece) const;
  std::string_view hash(std::uint32_t piece) const;
  bool proves(std::uint32_t piece, std::span<const std::byte> content) const;

  std::string id() const;
  bool well_formed()
      const;  // of the form that table_of_file makes: what came from elsewhere may not be
  bool operator==(const FileTable&) const = default;
};

bool is_content_id(std::string_view text);

// Reads all of it. StoreError: it cannot be read, changes meanwhile, or is too large.
FileTable table_of_file(const std::filesystem::path& path);

}  // namespace strait::transfer
