#include "launcher/transfer/piece_set.h"

#include <algorithm>

namespace strait::transfer {

PieceSet PieceSet::all(std::uint32_t pieces) {
  PieceSet set(pieces);
  set.present_.assign(pieces, true);
  set.count_ = pieces;
  return set;
}

PieceSet PieceSet::holding(const FileTable& table, std::span<const ByteRange> ranges) {
  PieceSet set(table.count());
  for (const ByteRange& range : ranges) {
    const std::uint64_t end = std::min(range.end, table.size);
    if (range.begin >= end) continue;
    const std::uint64_t last = (end - 1) / FileTable::kPieceBytes;
    for (std::uint64_t piece = range.begin / FileTable::kPieceBytes; piece <= last; ++piece) {
      set.insert(static_cast<std::uint32_t>(piece));
    }
  }
  return set;
}

bool PieceSet::contains(const PieceSet& others) const {
  for (std::uint32_t piece = 0; piece < others.size(); ++piece) {
    if (others.present_[piece] && !contains(piece)) return false;
  }
  return true;
}

void PieceSet::insert(std::uint32_t piece) {
  if (!present_.at(piece)) ++count_;
  present_[piece] = true;
}

void PieceSet::erase(std::uint32_t piece) {
  if (present_.at(piece)) --count_;
  present_[piece] = false;
}

void PieceSet::insert(const PieceSet& others) {
  for (std::uint32_t piece = 0; piece < others.size(); ++piece) {
    if (others.present_[piece]) insert(piece);
  }
}

void PieceSet::erase(const PieceSet& others) {
  for (std::uint32_t piece = 0; piece < others.size(); ++piece) {
    if (others.present_[piece]) erase(piece);
  }
}

bool PieceSet::insert(std::span<const PieceRun> runs) {
  const bool inside = std::all_of(runs.begin(), runs.end(), [this](const PieceRun& run) {
    return run.first <= size() && run.count <= size() - run.first;
  });
  if (!inside) return false;
  for (const PieceRun& run : runs) {
    for (std::uint32_t piece = run.first; piece < run.first + run.count; ++piece) insert(piece);
  }
  return true;
}

std::vector<PieceRun> PieceSet::runs() const {
  std::vector<PieceRun> runs;
  for (std::uint32_t piece = 0; piece < size(); ++piece) {
    if (!present_[piece]) continue;
    const bool goes_on = !runs.empty() && runs.back().first + runs.back().count == piece;
    if (goes_on) {
      ++runs.back().count;
    } else {
      runs.push_back({piece, 1});
    }
  }
  return runs;
}

std::uint64_t PieceSet::bytes(const FileTable& table) const {
  std::uint64_t sum = 0;
  for (std::uint32_t piece = 0; piece < size(); ++piece) {
    if (present_[piece]) sum += table.bytes(piece);
  }
  return sum;
}

}  // namespace strait::transfer
