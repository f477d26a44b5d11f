#include "framework/sync/block_models.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <numeric>

#include "framework/sync/block_pattern.h"
#include "framework/sync/sync_error.h"

namespace strait::sync {
namespace {

constexpr std::size_t kEscape = SymbolModel::kSymbols - 1;
constexpr int kBlock = 16;
constexpr unsigned kWidthBits = 4;

// The binomial distribution of the number of values in a block that sends each with this
// probability.
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

template <std::size_t kCount>
std::array<SymbolModel, kCount> all_alike(const SymbolModel& model) {
  return [&]<std::size_t... kEach>(std::index_sequence<kEach...>) {
    return std::array<SymbolModel, kCount>{((void)kEach, model)...};
  }
  (std::make_index_sequence<kCount>());
}

// Contexts by the recent number of values per block: up to 0.25, 1, 2, 3, 4, 6, 9, more.
constexpr unsigned kActivityShift = 5;
constexpr auto kActivityOf = [] {
  constexpr std::array<std::size_t, 7> kBounds = {32, 128, 256, 384, 512, 768, 1152};
  std::array<std::uint8_t, (kBlock * 128 >> kActivityShift) + 1> found{};
  for (std::size_t i = 0; i < found.size(); ++i) {
    for (const std::size_t bound : kBounds) found[i] += i << kActivityShift >= bound ? 1U : 0U;
  }
  return found;
}();

// A number above 0 beyond the models' symbols: its width, then its bits below the highest.
void put_rest(LaneWriter& writer, std::size_t lane, std::uint32_t rest) {
  const auto width = static_cast<unsigned>(std::bit_width(rest)) - 1;
  writer.put(lane, width, 1, kWidthBits);
  writer.put(lane, rest - (1U << width), 1, width);
}

std::uint32_t take_rest(LaneReader& reader, std::size_t lane) {
  const unsigned width = reader.peek(lane, kWidthBits);
  reader.take(lane, width, 1, kWidthBits);
  const std::uint32_t low = reader.peek(lane, width);
  reader.take(lane, low, 1, width);
  return (1U << width) + low;
}

// The weight of the initial frequencies, in symbols.
constexpr double kTrust = 24;
// Rebuilds are frequent at first, so that packets of a kilobyte adapt, too.
constexpr std::uint32_t kFirstInterval = 16;
constexpr std::uint32_t kLastInterval = 512;
// Counts are halved at this many symbols, so that older symbols weigh less.
constexpr std::uint32_t kRemembered = 2048;

}  // namespace

BlockModels::BlockModels(double share, double decay, SymbolModel::End end)
    : classes_(all_alike<kActivities>(SymbolModel(counts_at_random(share), end))),
      levels_(all_alike<kLevelContexts>(SymbolModel(falling_levels(decay), end))),
      activity_(static_cast<int>(share * kBlock * 128)) {}

SymbolModel& BlockModels::model_of_class() {
  return classes_[kActivityOf[static_cast<unsigned>(activity_) >> kActivityShift]];
}

void BlockModels::count(std::size_t pattern_class) {
  // A moving average over about eight blocks. Division rounds towards zero, which is part of the
  // format.
  activity_ += (static_cast<int>(most_values(pattern_class)) * 128 - activity_) / 8;
}

void BlockModels::put_classes(LaneWriter& writer, std::size_t first,
                              std::span<const std::uint16_t> patterns) {
  for (std::size_t i = 0; i < patterns.size(); ++i) {
    const std::size_t found = class_of(patterns[i]);
    model_of_class().put(writer, (first + i) % kLanes, found);
    count(found);
  }
}

void BlockModels::take_classes(LaneReader& reader, std::size_t first,
                               std::span<std::uint8_t> classes) {
  for (std::size_t i = 0; i < classes.size(); ++i) {
    const std::size_t found = model_of_class().take(reader, (first + i) % kLanes);
    classes[i] = static_cast<std::uint8_t>(found);
    count(found);
  }
}

// Writes a whole block of contexts for each block and overlaps the next: a loop over exactly its
// values would end in an unpredictable branch.
void BlockModels::find_contexts(std::span<const std::uint16_t> patterns, std::size_t values) {
  constexpr auto kContextOf = [] {
    std::array<std::uint8_t, kBlock + 1> found{};
    for (std::size_t i = 0; i < found.size(); ++i) found[i] = i <= 2 ? 0 : i <= 5 ? 1 : 2;
    return found;
  }();
  contexts_.resize(values + kBlock);
  std::uint8_t* to = contexts_.data();
  for (const std::uint16_t pattern : patterns) {
    const auto count = values_in(pattern);
    std::memset(to, kContextOf[count], kBlock);
    to += count;
  }
}

void BlockModels::put_levels(LaneWriter& writer, std::size_t first,
                             std::span<const std::uint16_t> patterns,
                             std::span<const std::int32_t> levels, const Grid& grid) {
  find_contexts(patterns, levels.size());
  for (std::size_t i = 0; i < levels.size(); ++i) {
    const std::size_t lane = (first + i) % kLanes;
    const auto upper = static_cast<std::size_t>(levels[i]) >> grid.plain_bits;
    SymbolModel& model = levels_[contexts_[i]];
    if (upper < kEscape) {
      model.put(writer, lane, upper);
    } else {
      model.put(writer, lane, kEscape);
      put_rest(writer, lane, static_cast<std::uint32_t>(upper - kEscape + 1));
    }
  }
}

void BlockModels::take_levels(LaneReader& reader, std::size_t first,
                              std::span<const std::uint16_t> patterns,
                              std::span<std::int32_t> levels, const Grid& grid) {
  find_contexts(patterns, levels.size());
  const auto most = static_cast<std::uint32_t>(grid.most_level) >> grid.plain_bits;
  for (std::size_t i = 0; i < levels.size(); ++i) {
    const std::size_t lane = (first + i) % kLanes;
    auto upper = static_cast<std::uint32_t>(levels_[contexts_[i]].take(reader, lane));
    if (upper == kEscape) {
      upper += take_rest(reader, lane) - 1;
      // A level beyond the grid would overflow the arithmetic of Grid::value().
      if (upper > most) {
        throw SyncError(SyncError::Kind::corrupt,
                        fmt::format("a packet has a value of level {}, the last level is {}",
                                    upper << grid.plain_bits, grid.most_level));
      }
    }
    levels[i] = static_cast<std::int32_t>(upper << grid.plain_bits);
  }
}

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

}  // namespace strait::sync
