#include "launcher/transfer/file_table.h"

#include <fmt/format.h>

#include <algorithm>
#include <vector>

#include "framework/store/file_hash.h"
#include "framework/store/input_file.h"
#include "framework/store/store_error.h"

namespace strait::transfer {
namespace {

bool all_hexadecimal(std::string_view text) {
  return std::all_of(text.begin(), text.end(),
                     [](char c) { return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f'); });
}

std::uint64_t pieces_for(std::uint64_t size) {
  return size / FileTable::kPieceBytes + (size % FileTable::kPieceBytes == 0 ? 0 : 1);
}

}  // namespace

std::uint32_t FileTable::count() const {
  return static_cast<std::uint32_t>(pieces.size() / kDigits);
}

std::uint64_t FileTable::bytes(std::uint32_t piece) const {
  return std::min(kPieceBytes, size - begin(piece));
}

std::string_view FileTable::hash(std::uint32_t piece) const {
  return std::string_view(pieces).substr(piece * kDigits, kDigits);
}

bool FileTable::proves(std::uint32_t piece, std::span<const std::byte> content) const {
  return piece < count() && content.size() == bytes(piece) &&
         store::hash_bytes(content) == hash(piece);
}

std::string FileTable::id() const {
  return store::hash_text(fmt::format("{} {} {} {}", kPieceBytes, size, whole, pieces));
}

bool FileTable::well_formed() const {
  return size <= kMostPieces * kPieceBytes && pieces.size() == pieces_for(size) * kDigits &&
         is_content_id(whole) && all_hexadecimal(pieces);
}

bool is_content_id(std::string_view text) {
  return text.size() == FileTable::kDigits && all_hexadecimal(text);
}

FileTable table_of_file(const std::filesystem::path& path) {
  const store::InputFile file(path);
  if (pieces_for(file.size()) > FileTable::kMostPieces) {
    throw store::StoreError(
        store::StoreError::Kind::bad_input,
        fmt::format("{} has {} bytes; files of at most {} bytes are shipped", path.string(),
                    file.size(), FileTable::kMostPieces * FileTable::kPieceBytes));
  }
  FileTable table;
  table.size = file.size();
  store::FileHash whole;
  std::vector<std::byte> buffer(std::min(FileTable::kPieceBytes, file.size()));
  for (std::uint64_t begin = 0; begin < file.size(); begin += FileTable::kPieceBytes) {
    const auto length = std::min(FileTable::kPieceBytes, file.size() - begin);
    const std::span<std::byte> piece = std::span(buffer).first(length);
    file.read(begin, piece);
    whole.update(piece);
    table.pieces += store::hash_bytes(piece);
  }
  table.whole = whole.hex();
  return table;
}

}  // namespace strait::transfer
