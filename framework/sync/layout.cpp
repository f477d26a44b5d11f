#include "framework/sync/layout.h"

#include <xxhash.h>

#include <algorithm>
#include <functional>
#include <numeric>
#include <stdexcept>

namespace strait::sync {
namespace {

// The key of the zone of all tensors that are not tied.
constexpr std::uint64_t kCommonZone = 0;

std::int64_t values_of(const std::vector<std::int64_t>& shape) {
  return std::accumulate(shape.begin(), shape.end(), std::int64_t{1}, std::multiplies<>());
}

std::int64_t up_to_grain(std::int64_t count) { return (count + kGrain - 1) / kGrain * kGrain; }

}  // namespace

Layout::Layout(const std::vector<PieceSpec>& specs) {
  // Tied tensors last: the zone of the others stays in one range.
  for (const bool tied : {false, true}) {
    for (const PieceSpec& spec : specs) {
      if (spec.tied != tied) continue;
      const Range values{size_, size_ + values_of(spec.shape)};
      size_ += up_to_grain(values.count());
      pieces_.push_back(Piece{spec, values});
      // A tied tensor's key is of its name, which is the same on both stages.
      const std::uint64_t name = XXH3_64bits(spec.name.data(), spec.name.size());
      if (tied) zones_.push_back(Zone{{values.first, size_}, name});
    }
    if (!tied && size_ > 0) zones_.push_back(Zone{{0, size_}, kCommonZone});
  }
}

bool Layout::contains(const std::string& name) const {
  return std::ranges::any_of(pieces_, [&](const Piece& one) { return one.spec.name == name; });
}

const Piece& Layout::piece(const std::string& name) const {
  const auto found = std::find_if(pieces_.begin(), pieces_.end(),
                                  [&](const Piece& piece) { return piece.spec.name == name; });
  if (found == pieces_.end()) throw std::out_of_range("the layout has no piece named " + name);
  return *found;
}

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

Range share(Range range, std::size_t members, std::size_t index) {
  const auto count = static_cast<std::int64_t>(members);
  const auto own = static_cast<std::int64_t>(index);
  const std::int64_t grains = up_to_grain(range.count()) / kGrain;
  // The first shares take the grains that the division leaves over.
  const auto cut = [&](std::int64_t before) {
    const std::int64_t grain = grains / count * before + std::min(grains % count, before);
    return std::min(range.first + grain * kGrain, range.last);
  };
  return {cut(own), cut(own + 1)};
}

std::vector<std::size_t> owners_of(const Layout& layout, std::size_t members) {
  const std::vector<Piece>& pieces = layout.pieces();
  std::vector<std::size_t> by_size(pieces.size());
  std::iota(by_size.begin(), by_size.end(), std::size_t{0});
  std::ranges::stable_sort(by_size, std::greater<>(),
                           [&](std::size_t i) { return pieces[i].range.count(); });
  std::vector<std::int64_t> owned(members);
  std::vector<std::size_t> owners(pieces.size());
  for (const std::size_t i : by_size) {
    const auto least = std::ranges::min_element(owned);
    *least += pieces[i].range.count();
    owners[i] = static_cast<std::size_t>(least - owned.begin());
  }
  return owners;
}

std::int64_t bucket_values(std::size_t members, int bits) {
  // Smaller buckets cost more messages than they gain by starting earlier.
  constexpr std::int64_t kLeast = std::int64_t{1} << 20;
  // A part of 32 KiB is large against a frame header and small against a link's window.
  constexpr std::int64_t kPartBits = std::int64_t{1} << 18;
  const std::int64_t enough = static_cast<std::int64_t>(members) * kPartBits / bits;
  return (std::max(kLeast, enough) + kGrain - 1) / kGrain * kGrain;
}

std::vector<Range> buckets_of(const Layout& layout, std::int64_t values) {
  std::vector<Range> buckets;
  for (const Zone& zone : layout.zones()) {
    const std::ptrdiff_t begin = std::ssize(buckets);
    for (std::int64_t first = zone.range.first; first < zone.range.last; first += values) {
      buckets.push_back({first, std::min(first + values, zone.range.last)});
    }
    // Cut from its first coordinate, so that two stages cut a tied tensor alike; reversed
    // afterwards. Zones stay in their order: gradients of tied tensors are complete last.
    std::reverse(buckets.begin() + begin, buckets.end());
  }
  return buckets;
}

}  // namespace strait::sync
