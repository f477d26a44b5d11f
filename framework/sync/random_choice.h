#pragma once

#include <initializer_list>

#include "framework/mixed_bits.h"
#include "framework/store/sample.h"
#include "framework/sync/layout.h"

// Random numbers and choices that all replicas make alike, without exchanging a seed.
namespace strait::sync {

// A counter-based random stream. The parts of the key name what the numbers are for; the stream of
// a key is the same on every machine.
class KeyedStream {
 public:
  explicit KeyedStream(std::initializer_list<std::uint64_t> parts) {
    for (const std::uint64_t part : parts) state_ = mixed_bits(state_ ^ mixed_bits(part));
  }
  std::uint64_t next() { return mixed_bits(state_ += 0x9e3779b97f4a7c15); }
  std::uint64_t below(std::uint64_t count) { return next() % count; }
  // From -1 to 1, in steps that a float holds exactly.
  float centred() {
    return static_cast<float>(static_cast<std::int64_t>(next() >> 40U) - (1 << 23)) / (1 << 23);
  }

 private:
  std::uint64_t state_ = 0;
};

// kGrain adjacent values of one piece: a cache line.
struct Block {
  std::int64_t first = 0;   // flat coordinate
  std::uint32_t piece = 0;  // index in Layout::pieces()
  std::uint8_t count = 0;   // values of the piece; the rest up to kGrain is padding
  bool dense = false;       // as Piece::dense()

  bool operator==(const Block&) const = default;
};

// The coordinates that a step's round covers: a share of each zone's blocks, drawn at random
// without replacement by a key that all replicas have. Every block is drawn again after 1 / share
// steps, one step more or less if that is not a whole number; no span of steps leaves a block out.
// The choice depends on the block's number within its zone and on nothing else: not on other zones,
// the number of members or how the zone is cut into parts.
class RandomChoice {
 public:
  // share: above 0, at most 1, in millionths.
  RandomChoice(std::uint64_t seed, double share);

  // The drawn blocks of a part, ascending. The part lies within one zone and begins at a grain.
  std::vector<Block> blocks(const Layout& layout, Range part, store::Step step) const;

 private:
  std::uint64_t seed_;
  // share = taken_ / of_
  std::uint64_t taken_;
  std::uint64_t of_;
};

}  // namespace strait::sync
