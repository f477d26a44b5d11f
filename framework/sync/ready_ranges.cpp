#include "framework/sync/ready_ranges.h"

#include <algorithm>

namespace strait::sync {

void ReadyRanges::clear() {
  all_ = false;
  ranges_.clear();
}

bool ReadyRanges::cover(const Layout& layout, Range range) const {
  if (all_) return true;
  for (const Piece& piece : layout.pieces()) {
    const Range wanted{std::max(range.first, piece.range.first),
                       std::min(range.last, piece.range.last)};
    if (wanted.count() <= 0) continue;
    const bool there = std::any_of(ranges_.begin(), ranges_.end(), [&](const Range& got) {
      return got.first <= wanted.first && wanted.last <= got.last;
    });
    if (!there) return false;
  }
  return true;
}

}  // namespace strait::sync
