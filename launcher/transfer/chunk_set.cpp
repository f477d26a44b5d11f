#include "launcher/transfer/chunk_set.h"

#include <algorithm>

namespace strait::transfer {

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

void ChunkSet::insert(const ChunkSet& others) {
  for (std::uint32_t chunk = 0; chunk < others.size(); ++chunk) {
    if (others.present_[chunk]) insert(chunk);
  }
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
    const bool goes_on = !runs.empty() && runs.back().first + runs.back().count == chunk;
    if (goes_on) {
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
