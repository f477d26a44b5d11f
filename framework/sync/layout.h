#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
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

// The values of a slot that lie in a range.
template <class Value>
std::span<Value> within(std::span<Value> values, Range range) {
  return values.subspan(static_cast<std::size_t>(range.first),
                        static_cast<std::size_t>(range.count()));
}

// Pieces begin at multiples of this number of values (a cache line of float32), and shares are cut
// at such multiples.
inline constexpr std::int64_t kGrain = 16;

// A tensor as the trainer names it.
struct PieceSpec {
  std::string name;  // global, as in checkpoints
  std::vector<std::int64_t> shape;
  // Another stage computes with it, too, so that its gradient is complete later than others.
  bool tied = false;
};

// A tensor's range in the flat space.
struct Piece {
  PieceSpec spec;
  Range range;  // without the padding up to the next grain, which is zero in every slot
  // Norms and biases: too few values for sparsification to gain anything.
  bool dense() const { return spec.shape.size() < 2; }
};

// Coordinates that are selected, scaled and coded together, with a key of their own. A tied tensor
// has a zone of its own, so that the others need not wait for its gradient.
struct Zone {
  Range range;
  std::uint64_t key = 0;
};

// The tensors of one stage laid end to end: the flat coordinates of slots, ranges and parts. A pure
// function of the tensors' names and shapes, so it is equal on all replicas of the stage.
class Layout {
 public:
  // In the order of the optimizer. Tied tensors come after the others, each in a zone of its own.
  explicit Layout(const std::vector<PieceSpec>& specs);

  const std::vector<Piece>& pieces() const { return pieces_; }  // by coordinate
  bool contains(const std::string& name) const;
  const Piece& piece(const std::string& name) const;  // std::out_of_range if unknown
  const std::vector<Zone>& zones() const { return zones_; }
  std::int64_t size() const { return size_; }  // padding included

 private:
  std::vector<Piece> pieces_;
  std::vector<Zone> zones_;
  std::int64_t size_ = 0;
};

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

// The share of a range that member `index` of `members` reduces. Shares cover the range once, in
// order, are cut at grains, and differ by one grain at most. A share may be empty.
Range share(Range range, std::size_t members, std::size_t index);

// Where members share state: the owner of each piece, by index. The largest pieces go first, each
// to the member that owns the fewest values so far.
std::vector<std::size_t> owners_of(const Layout& layout, std::size_t members);

// Values of a bucket: a million, so that it leaves early and fills a link's chunks; more with so
// many members that a part would be little more than its frame header. A whole number of grains, so
// that parts share no cache line. `bits`: of a value on the wire.
std::int64_t bucket_values(std::size_t members, int bits);

// The layout in ranges of about `values` values, cut at grains, last coordinates first, tied
// tensors at the end: the backward pass completes gradients in that order. No range spans two
// zones.
std::vector<Range> buckets_of(const Layout& layout, std::int64_t values);

}  // namespace strait::sync
