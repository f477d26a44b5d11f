#include "framework/sync/layout.h"

#include <xxhash.h>

#include <algorithm>
#include <functional>
#include <numeric>
#include <stdexcept>

namespace strait::sync {
namespace {

// Of everything that lives on one stage only.
constexpr std::uint64_t kCommonZone = 0;

std::int64_t values_of(const std::vector<std::int64_t>& shape) {
  return std::accumulate(shape.begin(), shape.end(), std::int64_t{1}, std::multiplies<>());
}

std::int64_t up_to_grain(std::int64_t count) { return (count + kGrain - 1) / kGrain * kGrain; }

}  // namespace

Layout::Layout(const std::vector<PieceSpec>& specs) {
  for (const bool twins : {false, true}) {
    for (const PieceSpec& spec : specs) {
      if (spec.twin != twins) continue;
      const Range values{size_, size_ + values_of(spec.shape)};
      size_ += up_to_grain(values.count());
      pieces_.push_back(Piece{spec, values});
      const std::uint64_t name = XXH3_64bits(spec.name.data(), spec.name.size());
      if (twins) zones_.push_back(Zone{{values.first, size_}, name});
    }
    if (!twins && size_ > 0) zones_.push_back(Zone{{0, size_}, kCommonZone});
  }
}

const Piece& Layout::piece(const std::string& name) const {
  const auto found = std::find_if(pieces_.begin(), pieces_.end(),
                                  [&](const Piece& piece) { return piece.spec.name == name; });
  if (found == pieces_.end()) throw std::out_of_range("no piece of a layout is called " + name);
  return *found;
}

Range share(Range range, std::size_t members, std::size_t index) {
  const auto count = static_cast<std::int64_t>(members);
  const auto place = static_cast<std::int64_t>(index);
  const std::int64_t grains = up_to_grain(range.count()) / kGrain;
  const auto cut = [&](std::int64_t before) {
    const std::int64_t grain = grains / count * before + std::min(grains % count, before);
    return std::min(range.first + grain * kGrain, range.last);
  };
  return {cut(place), cut(place + 1)};
}

}  // namespace strait::sync
