#pragma once

#include <cstdint>
#include <vector>

#include "framework/store/sample.h"
#include "framework/sync/layout.h"

namespace strait::sync {

// kGrain neighbours of one piece: a cache line that a round looks at.
struct Block {
  std::int64_t first = 0;   // flat coordinate
  std::uint32_t piece = 0;  // of Layout::pieces()
  std::uint8_t count = 0;   // values that are there; the others up to kGrain are padding
  bool dense = false;       // as Piece::dense()
  bool operator==(const Block&) const = default;
};

// Which coordinates a step looks at: a share of each zone's blocks, drawn at random and without
// putting back, by a key that everybody has. Every block comes round again after 1 / share steps,
// one step more or less where that is no whole number; no stretch of steps leaves a block out.
// What is chosen depends on the block's number within its zone and on nothing else: not on other
// zones, on how many members there are or on how the zone is cut into parts.
class RandomChoice {
 public:
  // share: above 0, at most 1; millionths count.
  RandomChoice(std::uint64_t seed, double share);

  // Of a part that lies within one zone and begins at a grain, ascending.
  std::vector<Block> blocks(const Layout& layout, Range part, store::Step step) const;

 private:
  std::uint64_t seed_;
  // share = taken_ / of_
  std::uint64_t taken_;
  std::uint64_t of_;
};

}  // namespace strait::sync
