#include "launcher/hosts/chunk_table.h"

#include <sys/stat.h>

#include <cerrno>

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

bool ChunkTable::matches(std::uint32_t chunk, std::span<const std::byte> content) const {
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
    throw store::StoreError(store::StoreError::Kind::bad_input,
                            "{} has {} bytes; files of at most {} bytes can be transferred",
                            path.string(), file.size(),
                            ChunkTable::kMostChunks * ChunkTable::kChunkBytes);
  }
  ChunkTable table;
  table.size = file.size();
  store::FileHash whole;
  file.each_piece(0, file.size(), ChunkTable::kChunkBytes, [&](auto chunk) {
    whole.update(chunk);
    table.chunks += store::hash_bytes(chunk);
  });
  table.whole = whole.hex();
  return table;
}

FileStamp FileStamp::of(const std::filesystem::path& path) {
  struct stat status {};
  if (::stat(path.c_str(), &status) != 0) throw store::system_error("stat", path, errno);
  constexpr std::int64_t kNanoseconds = 1'000'000'000;
  return {static_cast<std::uint64_t>(status.st_size), status.st_ino,
          status.st_ctim.tv_sec * kNanoseconds + status.st_ctim.tv_nsec};
}

ChunkSet ChunkSet::all(std::uint32_t chunks) {
  ChunkSet set(chunks);
  set.present_.assign(chunks, true);
  set.count_ = chunks;
  return set;
}

ChunkSet ChunkSet::holding(const ChunkTable& table, std::span<const ByteRange> ranges) {
  ChunkSet set(table.count());
  for (const ByteRange& range : ranges) {
    const std::uint64_t end = std::min(range.end, table.size);
    if (range.begin >= end) continue;
    const std::uint64_t last = (end - 1) / ChunkTable::kChunkBytes;
    for (std::uint64_t chunk = range.begin / ChunkTable::kChunkBytes; chunk <= last; ++chunk) {
      set.insert(static_cast<std::uint32_t>(chunk));
    }
  }
  return set;
}

bool ChunkSet::contains(const ChunkSet& others) const {
  for (std::uint32_t chunk = 0; chunk < others.size(); ++chunk) {
    if (others.present_[chunk] && !contains(chunk)) return false;
  }
  return true;
}

void ChunkSet::insert(std::uint32_t chunk) {
  if (!present_.at(chunk)) ++count_;
  present_[chunk] = true;
}

void ChunkSet::erase(std::uint32_t chunk) {
  if (present_.at(chunk)) --count_;
  present_[chunk] = false;
}

void ChunkSet::erase(const ChunkSet& others) {
  for (std::uint32_t chunk = 0; chunk < others.size(); ++chunk) {
    if (others.present_[chunk]) erase(chunk);
  }
}

bool ChunkSet::insert(std::span<const ChunkRun> runs) {
  const bool inside = std::all_of(runs.begin(), runs.end(), [this](const ChunkRun& run) {
    return run.first <= size() && run.count <= size() - run.first;
  });
  if (!inside) return false;
  for (const ChunkRun& run : runs) {
    for (std::uint32_t chunk = run.first; chunk < run.first + run.count; ++chunk) insert(chunk);
  }
  return true;
}

std::vector<ChunkRun> ChunkSet::runs() const {
  std::vector<ChunkRun> runs;
  for (std::uint32_t chunk = 0; chunk < size(); ++chunk) {
    if (!present_[chunk]) continue;
    const bool extends_last = !runs.empty() && runs.back().first + runs.back().count == chunk;
    if (extends_last) {
      ++runs.back().count;
    } else {
      runs.push_back({chunk, 1});
    }
  }
  return runs;
}

std::uint64_t ChunkSet::bytes(const ChunkTable& table) const {
  std::uint64_t sum = 0;
  for (std::uint32_t chunk = 0; chunk < size(); ++chunk) {
    if (present_[chunk]) sum += table.bytes(chunk);
  }
  return sum;
}

}  // namespace strait::transfer
