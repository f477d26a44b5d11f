#include "framework/sync/largest.h"

#include <algorithm>
#include <array>
#include <functional>
#include <limits>
#include <optional>

namespace strait::sync {
namespace {

// Buckets by exponent and five bits of the mantissa: 32 KiB of counters, and the bucket of the
// threshold holds a few percent of the values.
constexpr unsigned kBucketShift = 18;
constexpr std::size_t kBuckets = std::size_t{1} << (31 - kBucketShift);

std::size_t bucket_of(std::int32_t magnitude) {
  return static_cast<std::size_t>(magnitude) >> kBucketShift;
}

// Of all that do not count as zero; nothing where they are more than are wanted.
std::optional<Largest> all_of(Stretches values, std::size_t wanted) {
  std::size_t count = 0;
  std::int32_t least = std::numeric_limits<std::int32_t>::max();
  for (const std::span<const float> stretch : values) {
    for (const float value : stretch) {
      const std::int32_t magnitude = magnitude_of(value);
      count += magnitude == 0 ? 0U : 1U;
      least = std::min(least, magnitude == 0 ? least : magnitude);
    }
  }
  if (count > wanted) return std::nullopt;
  if (count == 0) return Largest{};
  std::size_t ties = 0;
  for (const std::span<const float> stretch : values) {
    for (const float value : stretch) ties += magnitude_of(value) == least ? 1U : 0U;
  }
  return Largest{least, ties, count};
}

}  // namespace

Largest largest_of(Stretches values, std::size_t wanted, std::vector<std::int32_t>& near) {
  near.clear();
  std::size_t all = 0;
  for (const std::span<const float> stretch : values) all += stretch.size();
  if (wanted > all / 2) {
    if (const auto found = all_of(values, wanted)) return *found;
  }
  std::array<std::uint32_t, kBuckets> counts{};
  for (const std::span<const float> stretch : values) {
    for (const float value : stretch) ++counts[bucket_of(magnitude_of(value))];
  }
  // What does not count as zero is far above the first bucket.
  wanted = std::min(wanted, all - counts[0]);
  if (wanted == 0) return {};

  std::size_t bucket = kBuckets - 1;
  std::size_t above = 0;
  while (above + counts[bucket] < wanted) above += counts[bucket--];
  near.resize(counts[bucket] + 1);
  std::size_t found = 0;
  for (const std::span<const float> stretch : values) {
    for (const float value : stretch) {
      const std::int32_t magnitude = magnitude_of(value);
      near[found] = magnitude;
      found += bucket_of(magnitude) == bucket ? 1U : 0U;
    }
  }
  near.pop_back();
  const std::size_t place = wanted - above - 1;
  const auto threshold = near.begin() + static_cast<std::ptrdiff_t>(place);
  std::nth_element(near.begin(), threshold, near.end(), std::greater<>());
  const std::int32_t least = *threshold;
  const auto beyond = static_cast<std::size_t>(
      std::count_if(near.begin(), threshold, [&](std::int32_t value) { return value > least; }));
  return {least, wanted - above - beyond, wanted};
}

}  // namespace strait::sync
