#include "framework/sync/largest.h"

#include <algorithm>
#include <functional>
#include <vector>

namespace strait::sync {
namespace {

// Buckets by exponent and five bits of the mantissa: 32 KiB of counters, and the bucket of the
// threshold holds a few percent of the values.
constexpr unsigned kBucketShift = 18;
constexpr std::size_t kBuckets = std::size_t{1} << (31 - kBucketShift);

}  // namespace

Largest largest_of(std::span<const std::uint32_t> magnitudes, std::size_t wanted) {
  std::vector<std::uint32_t> counts(kBuckets);
  for (const std::uint32_t magnitude : magnitudes) ++counts[magnitude >> kBucketShift];
  const auto zeros = static_cast<std::size_t>(std::count(magnitudes.begin(), magnitudes.end(), 0U));
  wanted = std::min(wanted, magnitudes.size() - zeros);
  if (wanted == 0) return {};

  std::size_t bucket = kBuckets - 1;
  std::size_t above = 0;
  while (above + counts[bucket] < wanted) above += counts[bucket--];
  std::vector<std::uint32_t> near;
  near.reserve(counts[bucket]);
  for (const std::uint32_t magnitude : magnitudes) {
    if (magnitude >> kBucketShift == bucket) near.push_back(magnitude);
  }
  const std::size_t place = wanted - above - 1;
  const auto threshold = near.begin() + static_cast<std::ptrdiff_t>(place);
  std::nth_element(near.begin(), threshold, near.end(), std::greater<>());
  const std::uint32_t least = *threshold;
  const auto beyond = static_cast<std::size_t>(
      std::count_if(near.begin(), threshold, [&](std::uint32_t value) { return value > least; }));
  return {least, wanted - above - beyond, wanted};
}

}  // namespace strait::sync
