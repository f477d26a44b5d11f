#pragma once

#include <vector>

#include "framework/sync/layout.h"

namespace strait::sync {

// The ranges of a step's gradient that are complete.
class ReadyRanges {
 public:
  void clear();
  void add(Range range) { ranges_.push_back(range); }
  void add_all() { all_ = true; }
  // Padding belongs to no piece, so it is never missing.
  bool cover(const Layout& layout, Range range) const;

 private:
  bool all_ = true;
  std::vector<Range> ranges_;
};

}  // namespace strait::sync
