#include "framework/sync/survivors.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>

#include "framework/sync/grid.h"
#include "framework/sync/largest.h"

namespace strait::sync {
namespace {

constexpr auto kOfBlock = static_cast<std::size_t>(kGrain);

// Eight bytes of 0 or 1 to as many bits, the first lowest.
std::uint32_t bits_of(const std::uint8_t* marks) {
  std::uint64_t bytes = 0;
  std::memcpy(&bytes, marks, sizeof bytes);
  return static_cast<std::uint32_t>(bytes * 0x0102040810204080U >> 56U);
}

// The values of blocks that are not dense, in stretches, and how many of them are no padding.
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

// 1 for each that is as large as the least, or larger. In one long loop, for the vectoriser's sake.
void mark(std::span<const float> values, std::int32_t least, std::vector<std::uint8_t>& marks) {
  marks.resize(values.size());
  // It would have to take bytes that are written for anything, the vectors themselves included.
  const float* const from = values.data();
  std::uint8_t* const to = marks.data();
  const std::size_t count = values.size();
  for (std::size_t i = 0; i < count; ++i) to[i] = magnitude_of(from[i]) >= least ? 1 : 0;
}

// A stretch's marked values, one behind the other, where there is room for one more. No branch:
// whether a value is one of the largest is as good as random.
float* pick(std::span<const float> values, std::span<const std::uint8_t> marks, float* to) {
  for (std::size_t i = 0; i < values.size(); ++i) {
    *to = values[i];
    to += marks[i];
  }
  return to;
}

// Takes those away that are equal to the least and too many, the last ones first.
void drop_ties(Survivors& survivors, std::size_t surplus, std::int32_t least) {
  std::size_t value = survivors.values.size();
  std::vector<bool> gone(value);
  for (std::size_t b = survivors.patterns.size(); b-- > 0 && surplus > 0;) {
    std::uint16_t& pattern = survivors.patterns[b];
    for (std::uint32_t rest = pattern; rest != 0 && surplus > 0;) {
      const auto highest = static_cast<unsigned>(std::bit_width(rest)) - 1;
      rest &= ~(1U << highest);
      if (magnitude_of(survivors.values[--value]) != least) continue;
      pattern = static_cast<std::uint16_t>(pattern & ~(1U << highest));
      gone[value] = true;
      --surplus;
    }
  }
  std::size_t kept = 0;
  for (std::size_t i = 0; i < gone.size(); ++i) {
    survivors.values[kept] = survivors.values[i];
    kept += gone[i] ? 0U : 1U;
  }
  survivors.values.resize(kept);
}

// In four sums, so that no addition waits for the one before it.
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

void find_survivors(std::span<const Block> blocks, std::span<const float> values, double top,
                    Survivors& survivors) {
  survivors.patterns.clear();
  survivors.values.clear();
  survivors.least = 0;
  std::size_t count = 0;
  const auto stretches = stretches_of(blocks, values, count);
  // Of very few at least one, or they would never be sent.
  const auto wanted = static_cast<std::size_t>(std::llround(top * static_cast<double>(count)));
  const Largest largest = largest_of(stretches, std::max<std::size_t>(wanted, 1), survivors.near);
  if (largest.count == 0) return;
  // Room for ties that go again, and for one that is looked at behind the last one.
  survivors.values.resize(largest.count + survivors.near.size() + 1);
  float* to = survivors.values.data();
  for (const std::span<const float> stretch : stretches) {
    mark(stretch, largest.least, survivors.marks);
    to = pick(stretch, survivors.marks, to);
    for (std::size_t i = 0; i < stretch.size(); i += kOfBlock) {
      const std::uint8_t* its = survivors.marks.data() + i;
      survivors.patterns.push_back(
          static_cast<std::uint16_t>(bits_of(its) | bits_of(its + kOfBlock / 2) << 8U));
    }
  }
  const auto taken = static_cast<std::size_t>(to - survivors.values.data());
  survivors.values.resize(taken);
  if (taken > largest.count) drop_ties(survivors, taken - largest.count, largest.least);
  survivors.mean = mean_magnitude(survivors.values);
  survivors.least = std::bit_cast<float>(largest.least);
  survivors.share = static_cast<double>(largest.count) / static_cast<double>(count);
}

}  // namespace strait::sync
