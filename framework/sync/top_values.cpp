#include "framework/sync/top_values.h"

#include <array>
#include <cmath>
#include <cstring>
#include <functional>
#include <limits>
#include <optional>

namespace strait::sync {
namespace {

// A histogram by exponent and five bits of the mantissa: 32 KiB of counters fit the first-level
// cache, and the bucket of the threshold holds a few percent of the values.
constexpr unsigned kBucketShift = 18;
constexpr std::size_t kBuckets = std::size_t{1} << (31 - kBucketShift);

std::size_t bucket_of(std::int32_t magnitude) {
  return static_cast<std::size_t>(magnitude) >> kBucketShift;
}

// All values that do not count as zero; nullopt if they are more than wanted.
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

constexpr auto kOfBlock = static_cast<std::size_t>(kGrain);

// Eight bytes of 0 or 1 to eight bits, the first lowest.
std::uint32_t bits_of(const std::uint8_t* marks) {
  std::uint64_t bytes = 0;
  std::memcpy(&bytes, marks, sizeof bytes);
  return static_cast<std::uint32_t>(bytes * 0x0102040810204080U >> 56U);
}

// The values of blocks that are not dense, in stretches; `count` becomes their number without
// padding.
std::vector<std::span<const float>> stretches_of(std::span<const Block> blocks,
                                                 std::span<const float> values,
                                                 std::size_t& count) {
  std::vector<std::span<const float>> stretches;
  std::size_t first = 0;
  for (std::size_t b = 0; b <= blocks.size(); ++b) {
    if (b < blocks.size() && !blocks[b].dense) {
      count += blocks[b].count;
      continue;
    }
    if (b > first) stretches.push_back(values.subspan(first * kOfBlock, (b - first) * kOfBlock));
    first = b + 1;
  }
  return stretches;
}

// Marks each value of at least this magnitude with 1. One long loop, so that it is vectorised.
void mark(std::span<const float> values, std::int32_t least, std::vector<std::uint8_t>& marks) {
  marks.resize(values.size());
  // Local pointers: a store of bytes may alias anything, the vectors' own fields included.
  const float* const from = values.data();
  std::uint8_t* const to = marks.data();
  const std::size_t count = values.size();
  for (std::size_t i = 0; i < count; ++i) to[i] = magnitude_of(from[i]) >= least ? 1 : 0;
}

// The marked values of a stretch, one after the other. `to` has room for one more, because every
// value is written. No branch: whether a value is one of the largest is unpredictable.
float* pick(std::span<const float> values, std::span<const std::uint8_t> marks, float* to) {
  for (std::size_t i = 0; i < values.size(); ++i) {
    *to = values[i];
    to += marks[i];
  }
  return to;
}

// Removes the surplus values that equal the least, the last ones first.
void drop_ties(TopValues& selected, std::size_t surplus, std::int32_t least) {
  std::size_t value = selected.values.size();
  std::vector<bool> gone(value);
  for (std::size_t b = selected.patterns.size(); b-- > 0 && surplus > 0;) {
    std::uint16_t& pattern = selected.patterns[b];
    for (std::uint32_t rest = pattern; rest != 0 && surplus > 0;) {
      const auto highest = static_cast<unsigned>(std::bit_width(rest)) - 1;
      rest &= ~(1U << highest);
      if (magnitude_of(selected.values[--value]) != least) continue;
      pattern = static_cast<std::uint16_t>(pattern & ~(1U << highest));
      gone[value] = true;
      --surplus;
    }
  }
  std::size_t kept = 0;
  for (std::size_t i = 0; i < gone.size(); ++i) {
    selected.values[kept] = selected.values[i];
    kept += gone[i] ? 0U : 1U;
  }
  selected.values.resize(kept);
}

// In four sums, so that additions do not wait for each other.
double mean_magnitude(std::span<const float> values) {
  const auto size = [&](std::size_t i) { return static_cast<double>(std::abs(values[i])); };
  double first = 0;
  double second = 0;
  double third = 0;
  double fourth = 0;
  std::size_t i = 0;
  for (; i + 4 <= values.size(); i += 4) {
    first += size(i);
    second += size(i + 1);
    third += size(i + 2);
    fourth += size(i + 3);
  }
  for (; i < values.size(); ++i) first += size(i);
  return ((first + second) + (third + fourth)) / static_cast<double>(values.size());
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
  // Bucket 0 has the zeros alone: kLeastMagnitude is far above it.
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
  const std::size_t rank = wanted - above - 1;
  const auto threshold = near.begin() + static_cast<std::ptrdiff_t>(rank);
  std::nth_element(near.begin(), threshold, near.end(), std::greater<>());
  const std::int32_t least = *threshold;
  const auto beyond = static_cast<std::size_t>(
      std::count_if(near.begin(), threshold, [&](std::int32_t value) { return value > least; }));
  return {least, wanted - above - beyond, wanted};
}

void select_top(std::span<const Block> blocks, std::span<const float> values, double top,
                TopValues& selected) {
  selected.patterns.clear();
  selected.values.clear();
  selected.least = 0;
  std::size_t count = 0;
  const auto stretches = stretches_of(blocks, values, count);
  // At least one, or the values of tiny tensors would never be sent.
  const auto wanted = static_cast<std::size_t>(std::llround(top * static_cast<double>(count)));
  const Largest largest = largest_of(stretches, std::max<std::size_t>(wanted, 1), selected.near);
  if (largest.count == 0) return;
  // Room for surplus ties, which are dropped again, and for the one value that pick() writes too
  // many.
  selected.values.resize(largest.count + selected.near.size() + 1);
  float* to = selected.values.data();
  for (const std::span<const float> stretch : stretches) {
    mark(stretch, largest.least, selected.marks);
    to = pick(stretch, selected.marks, to);
    for (std::size_t i = 0; i < stretch.size(); i += kOfBlock) {
      const std::uint8_t* its = selected.marks.data() + i;
      selected.patterns.push_back(
          static_cast<std::uint16_t>(bits_of(its) | bits_of(its + kOfBlock / 2) << 8U));
    }
  }
  const auto taken = static_cast<std::size_t>(to - selected.values.data());
  selected.values.resize(taken);
  if (taken > largest.count) drop_ties(selected, taken - largest.count, largest.least);
  selected.mean = mean_magnitude(selected.values);
  selected.least = std::bit_cast<float>(largest.least);
  selected.share = static_cast<double>(largest.count) / static_cast<double>(count);
}

}  // namespace strait::sync
