#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace strait::sync {

// Half open, in flat coordinates.
struct Range {
  std::int64_t first = 0;
  std::int64_t last = 0;
  std::int64_t count() const { return last - first; }
  bool operator==(const Range&) const = default;
};

// Pieces begin at multiples of so many values (a cache line of float32), and shares are cut there.
inline constexpr std::int64_t kGrain = 16;

// A tensor as the trainer names it.
struct PieceSpec {
  std::string name;  // global, as in checkpoints
  std::vector<std::int64_t> shape;
  bool twin =
      false;  // the same weight lives on another stage too and has to stay equal to this one
};

// A tensor's place in the flat space.
struct Piece {
  PieceSpec spec;
  Range range;  // its values; what is left up to the next grain is padding, zero in every slot
  // Norms and biases: too few to be worth thinning out.
  bool dense() const { return spec.shape.size() < 2; }
};

// Coordinates that are selected, scaled and coded on their own, by a key of their own. Two stages
// that hold the same weight hold the same zone, so that the same arithmetic gives both the same
// bits without a word between them.
struct Zone {
  Range range;
  std::uint64_t key = 0;
};

// The tensors of one stage laid end to end: the flat coordinates that slots, ranges and parts speak
// of. A pure function of the tensors' names and shapes, so equal on all replicas of the stage.
class Layout {
 public:
  // In the order of the optimizer. Twins are put behind the others, each a zone of its own.
  explicit Layout(const std::vector<PieceSpec>& specs);

  const std::vector<Piece>& pieces() const { return pieces_; }  // by coordinate
  const Piece& piece(const std::string& name) const;            // it must be there
  const std::vector<Zone>& zones() const { return zones_; }
  std::int64_t size() const { return size_; }  // padding included

 private:
  std::vector<Piece> pieces_;
  std::vector<Zone> zones_;
  std::int64_t size_ = 0;
};

// What member `index` of `members` serves of a range: all of it once, in order, cut at grains, as
// even as grains allow. May be empty. Any number of members, any size.
Range share(Range range, std::size_t members, std::size_t index);

}  // namespace strait::sync
