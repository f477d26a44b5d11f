#include "launcher/transfer/chunk_table.h"

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

std::uint64_t chunks_for(std::uint64_t size) {
  return size / ChunkTable::kChunkBytes + (size % ChunkTable::kChunkBytes == 0 ? 0 : 1);
}

}  // namespace

std::uint32_t ChunkTable::count() const {
  return static_cast<std::uint32_t>(chunks.size() / kDigits);
}

std::uint64_t ChunkTable::bytes(std::uint32_t chunk) const {
  return std::min(kChunkBytes, size - begin(chunk));
}

std::string_view ChunkTable::hash(std::uint32_t chunk) const {
  return std::string_view(chunks).substr(chunk * kDigits, kDigits);
}

bool ChunkTable::proves(std::uint32_t chunk, std::span<const std::byte> content) const {
  return chunk < count() && content.size() == bytes(chunk) &&
         store::hash_bytes(content) == hash(chunk);
}

std::string ChunkTable::id() const {
  return store::hash_text(fmt::format("{} {} {} {}", kChunkBytes, size, whole, chunks));
}

bool ChunkTable::well_formed() const {
  return size <= kMostChunks * kChunkBytes && chunks.size() == chunks_for(size) * kDigits &&
         is_content_id(whole) && all_hexadecimal(chunks);
}

bool is_content_id(std::string_view text) {
  return text.size() == ChunkTable::kDigits && all_hexadecimal(text);
}

ChunkTable read_chunk_table(const std::filesystem::path& path) {
  const store::InputFile file(path);
  if (chunks_for(file.size()) > ChunkTable::kMostChunks) {
    throw store::StoreError(
        store::StoreError::Kind::bad_input,
        fmt::format("{} has {} bytes; files of at most {} bytes are shipped", path.string(),
                    file.size(), ChunkTable::kMostChunks * ChunkTable::kChunkBytes));
  }
  ChunkTable table;
  table.size = file.size();
  store::FileHash whole;
  std::vector<std::byte> buffer(std::min(ChunkTable::kChunkBytes, file.size()));
  for (std::uint64_t begin = 0; begin < file.size(); begin += ChunkTable::kChunkBytes) {
    const auto length = std::min(ChunkTable::kChunkBytes, file.size() - begin);
    const std::span<std::byte> chunk = std::span(buffer).first(length);
    file.read(begin, chunk);
    whole.update(chunk);
    table.chunks += store::hash_bytes(chunk);
  }
  table.whole = whole.hex();
  return table;
}

}  // namespace strait::transfer
