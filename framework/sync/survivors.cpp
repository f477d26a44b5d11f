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

// Zero for what counts as zero. Compared as signed numbers, which processors are quicker at.
std::uint32_t magnitude_bits(float value) {
  const auto bits = static_cast<std::int32_t>(std::bit_cast<std::uint32_t>(value) & 0x7FFFFFFFU);
  return static_cast<std::uint32_t>(bits < std::bit_cast<std::int32_t>(kLeastMagnitude) ? 0 : bits);
}

// Eight bytes of 0 or 1 to as many bits, the first lowest.
std::uint32_t bits_of(const std::uint8_t* marks) {
  std::uint64_t bytes = 0;
  std::memcpy(&bytes, marks, sizeof bytes);
  return static_cast<std::uint32_t>(bytes * 0x0102040810204080U >> 56U);
}

// The magnitudes, and how many of them are no padding.
std::vector<std::uint32_t> magnitudes_of(std::span<const Block> blocks,
                                         std::span<const float> values, std::size_t& count) {
  std::vector<std::uint32_t> magnitudes(values.size());
  std::size_t filled = 0;
  for (std::size_t b = 0; b < blocks.size(); ++b) {
    if (blocks[b].dense) continue;
    count += blocks[b].count;
    for (std::size_t i = 0; i < kOfBlock; ++i) {
      magnitudes[filled + i] = magnitude_bits(values[b * kOfBlock + i]);
    }
    filled += kOfBlock;
  }
  magnitudes.resize(filled);
  return magnitudes;
}

// 1 for each of the largest. In one long loop, for the vectoriser's sake.
std::vector<std::uint8_t> marks_of(std::span<const std::uint32_t> magnitudes,
                                   const Largest& largest) {
  std::vector<std::uint8_t> marks(magnitudes.size());
  const auto least = static_cast<std::int32_t>(largest.least);
  std::size_t equal = 0;
  for (std::size_t i = 0; i < marks.size(); ++i) {
    const auto magnitude = static_cast<std::int32_t>(magnitudes[i]);
    marks[i] = magnitude >= least ? 1 : 0;
    equal += magnitude == least ? 1U : 0U;
  }
  for (std::size_t i = marks.size(); equal > largest.ties; --i) {
    if (magnitudes[i - 1] != largest.least) continue;
    marks[i - 1] = 0;
    --equal;
  }
  return marks;
}

// Fills in patterns, values and their mean.
void pick(std::span<const Block> blocks, std::span<const float> values,
          std::span<const std::uint8_t> marks, Survivors& survivors) {
  double sum = 0;
  const std::uint8_t* its = marks.data();
  for (std::size_t b = 0; b < blocks.size(); ++b) {
    if (blocks[b].dense) continue;
    const std::uint32_t pattern = bits_of(its) | bits_of(its + 8) << 8U;
    survivors.patterns.push_back(static_cast<std::uint16_t>(pattern));
    for (std::uint32_t rest = pattern; rest != 0; rest &= rest - 1) {
      const float value = values[b * kOfBlock + static_cast<std::size_t>(std::countr_zero(rest))];
      survivors.values.push_back(value);
      sum += static_cast<double>(std::abs(value));
    }
    its += kOfBlock;
  }
  survivors.mean = sum / static_cast<double>(survivors.values.size());
}

}  // namespace

Survivors survivors_of(std::span<const Block> blocks, std::span<const float> values, double top) {
  Survivors survivors;
  std::size_t count = 0;
  const std::vector<std::uint32_t> magnitudes = magnitudes_of(blocks, values, count);
  // Of very few at least one, or they would never be sent.
  const auto wanted = static_cast<std::size_t>(std::llround(top * static_cast<double>(count)));
  const Largest largest = largest_of(magnitudes, std::max<std::size_t>(wanted, 1));
  if (largest.count == 0) return survivors;
  survivors.patterns.reserve(blocks.size());
  survivors.values.reserve(largest.count);
  pick(blocks, values, marks_of(magnitudes, largest), survivors);
  survivors.least = std::bit_cast<float>(largest.least);
  survivors.share = static_cast<double>(largest.count) / static_cast<double>(count);
  return survivors;
}

}  // namespace strait::sync
