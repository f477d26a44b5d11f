#include "framework/sync/block_models.h"

#include <fmt/format.h>

#include <bit>

#include "framework/sync/block_pattern.h"
#include "framework/sync/sync_error.h"

namespace strait::sync {
namespace {

constexpr std::size_t kEscape = SymbolModel::kSymbols - 1;
constexpr int kBlock = 16;

// How likely a block has 0, 1, … 16 values if each is sent by itself with the same probability.
SymbolModel::Weights counts_at_random(double share) {
  SymbolModel::Weights weights{};
  double weight = 1;
  for (int i = 0; i < kBlock; ++i) weight *= 1 - share;
  for (int count = 0; count <= kBlock; ++count) {
    weights[count == kBlock ? 15 : count == 15 ? 14 : static_cast<std::size_t>(count)] += weight;
    weight *= share / (1 - share) * (kBlock - count) / (count + 1);
  }
  return weights;
}

SymbolModel::Weights falling_levels(double decay) {
  SymbolModel::Weights weights{};
  double weight = 1;
  for (double& each : weights) {
    each = weight;
    weight *= decay;
  }
  weights.back() /= 1 - decay;
  return weights;
}

// A level: its upper bits by what was learned, up to an escape; its lower bits plainly.
void put_level(RangeEncoder& encoder, SymbolModel& model, std::int32_t level, unsigned plain_bits) {
  const auto value = static_cast<std::uint32_t>(level);
  const std::uint32_t upper = value >> plain_bits;
  if (upper < kEscape) {
    model.put(encoder, upper);
  } else {
    model.put(encoder, kEscape);
    const std::uint32_t rest = upper - static_cast<std::uint32_t>(kEscape) + 1;
    const auto width = static_cast<std::uint32_t>(std::bit_width(rest)) - 1;
    encoder.put_uniform(width, 16);
    if (width > 0) encoder.put(rest - (1U << width), 1, width);
  }
  if (plain_bits > 0) encoder.put(value & ((1U << plain_bits) - 1), 1, plain_bits);
}

std::uint32_t plain(RangeDecoder& decoder, unsigned bits) {
  if (bits == 0) return 0;
  const std::uint32_t value = decoder.place(bits);
  decoder.take(value, 1);
  return value;
}

std::int32_t take_level(RangeDecoder& decoder, SymbolModel& model, const Grid& grid) {
  auto upper = static_cast<std::uint32_t>(model.take(decoder));
  if (upper == kEscape) {
    const std::uint32_t width = decoder.uniform(16);
    upper += (1U << width) - 1 + plain(decoder, width);
  }
  const std::uint32_t level = (upper << grid.plain_bits) + plain(decoder, grid.plain_bits);
  if (level > static_cast<std::uint32_t>(grid.most_level)) {
    throw SyncError(
        SyncError::Kind::corrupt,
        fmt::format("a packet has a value of level {}; there are {}", level, grid.most_level + 1));
  }
  return static_cast<std::int32_t>(level);
}

}  // namespace

BlockModels::BlockModels(double share, double decay)
    : activity_(static_cast<int>(share * kBlock * 128)) {
  counts_.fill(SymbolModel(counts_at_random(share)));
  levels_.fill(SymbolModel(falling_levels(decay)));
}

// By values that a block had of late: 0.25, 1, 2, 3, 4, 6, 9.
std::size_t BlockModels::activity() const {
  constexpr std::array<int, kActivities - 1> kBounds = {32, 128, 256, 384, 512, 768, 1152};
  std::size_t found = 0;
  for (const int bound : kBounds) found += activity_ >= bound ? 1U : 0U;
  return found;
}

void BlockModels::put(RangeEncoder& encoder, const CodedBlock& block, const Grid& grid) {
  const int values = std::popcount(block.pattern);
  const PatternPlace place = place_of(block.pattern);
  counts_[activity()].put(encoder, place.pattern_class);
  const unsigned signs = most_values(place.pattern_class);
  encoder.put_uniform(place.place << signs | block.signs, patterns_of(place.pattern_class)
                                                              << signs);
  count(values);
  if (grid.most_level == 0) return;
  SymbolModel& levels = levels_of(values);
  for (int i = 0; i < values; ++i) {
    put_level(encoder, levels, block.levels[static_cast<std::size_t>(i)], grid.plain_bits);
  }
}

void BlockModels::take(RangeDecoder& decoder, const Grid& grid, CodedBlock& block) {
  PatternPlace place;
  place.pattern_class = counts_[activity()].take(decoder);
  const unsigned signs = most_values(place.pattern_class);
  const std::uint32_t both = decoder.uniform(patterns_of(place.pattern_class) << signs);
  place.place = both >> signs;
  block.pattern = pattern_at(place);
  block.signs = static_cast<std::uint16_t>(both & ((1U << signs) - 1));
  const int values = std::popcount(block.pattern);
  count(values);
  if (grid.most_level == 0) {
    block.levels.fill(0);
    return;
  }
  SymbolModel& levels = levels_of(values);
  for (int i = 0; i < values; ++i) {
    block.levels[static_cast<std::size_t>(i)] = take_level(decoder, levels, grid);
  }
}

}  // namespace strait::sync
