#include "framework/coding/symbol_model.h"

#include <algorithm>
#include <bit>
#include <cstdlib>
#include <numeric>

namespace strait::coding {
namespace {

// The weight of the initial frequencies, in symbols.
constexpr double kTrust = 24;
// Rebuilds are frequent at first, so that packets of a kilobyte adapt, too.
constexpr std::uint32_t kFirstInterval = 16;
constexpr std::uint32_t kLastInterval = 512;
// Counts are halved at this many symbols, so that older symbols weigh less.
constexpr std::uint32_t kRemembered = 2048;

constexpr std::size_t kContexts = 32;
// Sizes 0, 1 and 2 have a symbol each. A further one stands for the sizes above 2^(symbol - 2), up
// to twice that; which one it is follows in plain bits.
constexpr std::size_t kExact = 3;
// A row, and a column's average, forget half of what they know in about this many levels.
constexpr std::uint32_t kRecent = 8;
constexpr std::uint32_t kMostSize = LevelModels::kMost * LevelModels::kOne;

std::size_t symbol_of(std::uint32_t size) {
  return size < kExact ? size : static_cast<std::size_t>(std::bit_width(size - 1)) + 1;
}

unsigned plain_bits(std::size_t symbol) {
  return symbol < kExact ? 0 : static_cast<unsigned>(symbol) - 2;
}

std::uint32_t least_of(std::size_t symbol) {
  return symbol < kExact ? static_cast<std::uint32_t>(symbol) : (1U << plain_bits(symbol)) + 1;
}

// Two contexts an octave.
std::size_t context_of(std::uint32_t size) {
  if (size < 2) return 0;
  const auto width = static_cast<unsigned>(std::bit_width(size));
  return std::min<std::size_t>(2 * (width - 1) + ((size >> (width - 2)) & 1U), kContexts - 1);
}

// Sizes that fall by a constant factor, of this mean. Only products: every processor has the same.
SymbolModel::Weights falling_sizes(double mean) {
  const double factor = mean / (1 + mean);
  SymbolModel::Weights weights{};
  double beyond = 1;  // the share of the sizes from this symbol's least on
  double power = factor;
  for (std::size_t symbol = 0; symbol < SymbolModel::kSymbols; ++symbol) {
    // After the exact ones the least size of a symbol is 2^n + 1.
    if (symbol > kExact) power *= power;
    if (symbol == kExact) power = factor * factor;
    const double next = symbol + 1 <= kExact ? beyond * factor : power * power * factor;
    weights[symbol] = beyond - next;
    beyond = next;
  }
  return weights;
}

double mean_in(std::size_t context) {
  if (context < 2) return 1.0 / LevelModels::kOne;
  const auto octave = static_cast<double>(std::uint64_t{1} << (context / 2));
  return octave * (context % 2 == 0 ? 1.25 : 1.75) / LevelModels::kOne;
}

}  // namespace

SymbolModel::SymbolModel(const Weights& weights, End end)
    : left_(kFirstInterval), interval_(kFirstInterval), reads_(end == End::reader) {
  const double sum = std::accumulate(weights.begin(), weights.end(), 0.0);
  for (std::size_t i = 0; i < kSymbols; ++i) {
    counts_[i] = static_cast<std::uint32_t>(sum > 0 ? weights[i] / sum * kTrust * kOne : kOne);
  }
  rebuild();
}

void SymbolModel::renew() {
  rebuild();
  if (std::accumulate(counts_.begin(), counts_.end(), 0U) >= kRemembered * kOne) {
    for (std::uint32_t& count : counts_) count /= 2;
  }
  left_ = interval_;
  interval_ = std::min(2 * interval_, kLastInterval);
}

// A frequency of one for each symbol, so that none becomes impossible; the rest by counts, and what
// rounding leaves over to the most frequent one.
void SymbolModel::rebuild() {
  const std::uint32_t sum = std::max(std::accumulate(counts_.begin(), counts_.end(), 0U), 1U);
  std::array<std::uint32_t, kSymbols> sizes{};
  std::uint32_t total = 0;
  for (std::size_t i = 0; i < kSymbols; ++i) {
    sizes[i] = 1 + counts_[i] * std::uint64_t{kScale - kSymbols} / sum;
    total += sizes[i];
  }
  *std::max_element(sizes.begin(), sizes.end()) += kScale - total;
  for (std::size_t i = 0; i < kSymbols; ++i) {
    starts_[i + 1] = static_cast<std::uint16_t>(starts_[i] + sizes[i]);
    if (reads_) {
      std::fill(symbols_.begin() + starts_[i], symbols_.begin() + starts_[i + 1],
                static_cast<std::uint8_t>(i));
    }
  }
}

LevelModels::LevelModels(std::vector<std::uint32_t> sizes, SymbolModel::End end)
    : sizes_(std::move(sizes)) {
  models_.reserve(kContexts);
  for (std::size_t i = 0; i < kContexts; ++i) models_.emplace_back(falling_sizes(mean_in(i)), end);
  for (std::uint32_t& size : sizes_) size = std::min(size, kMostSize);
}

SymbolModel& LevelModels::model_of(std::size_t column) {
  // The row's own levels count twice as much as what was expected of them.
  const std::uint64_t above = 2 * std::uint64_t{seen_} + expected_ + kOne;
  const std::uint64_t below = 3 * std::uint64_t{expected_} + kOne;
  const std::uint64_t size = sizes_[column] * above / below;
  return models_[context_of(static_cast<std::uint32_t>(std::min<std::uint64_t>(size, kMostSize)))];
}

void LevelModels::learn(std::size_t column, std::int32_t level) {
  const std::uint32_t size = static_cast<std::uint32_t>(std::abs(level)) * kOne;
  std::uint32_t& average = sizes_[column];
  seen_ = seen_ - seen_ / kRecent + size;
  expected_ = expected_ - expected_ / kRecent + average;
  // Rounded up, so that a column of zeros still gets to zero.
  average = average - (average + kRecent - 1) / kRecent + size / kRecent;
}

void LevelModels::put(LaneWriter& writer, std::span<const std::int32_t> row) {
  seen_ = expected_ = 0;
  for (std::size_t i = 0; i < row.size(); ++i) {
    const std::size_t lane = i % kLanes;
    const auto size = static_cast<std::uint32_t>(std::abs(row[i]));
    const std::size_t symbol = symbol_of(size);
    model_of(i).put(writer, lane, symbol);
    if (symbol >= kExact) writer.put(lane, size - least_of(symbol), 1, plain_bits(symbol));
    if (size != 0) writer.put(lane, row[i] < 0 ? 1 : 0, 1, 1);
    learn(i, row[i]);
  }
}

void LevelModels::take(LaneReader& reader, std::span<std::int32_t> row) {
  seen_ = expected_ = 0;
  const auto take_plain = [&](std::size_t lane, unsigned bits) {
    const std::uint32_t value = reader.peek(lane, bits);
    reader.take(lane, value, 1, bits);
    return value;
  };
  for (std::size_t i = 0; i < row.size(); ++i) {
    const std::size_t lane = i % kLanes;
    const std::size_t symbol = model_of(i).take(reader, lane);
    std::uint32_t size = least_of(symbol);
    if (symbol >= kExact) size += take_plain(lane, plain_bits(symbol));
    const bool negative = size != 0 && take_plain(lane, 1) != 0;
    row[i] = negative ? -static_cast<std::int32_t>(size) : static_cast<std::int32_t>(size);
    learn(i, row[i]);
  }
}

}  // namespace strait::coding
