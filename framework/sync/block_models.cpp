#include "framework/sync/block_models.h"

#include <fmt/format.h>

#include <bit>
#include <cstring>

#include "framework/sync/block_pattern.h"
#include "framework/sync/sync_error.h"

namespace strait::sync {
namespace {

constexpr std::size_t kEscape = coding::SymbolModel::kSymbols - 1;
constexpr int kBlock = 16;
constexpr unsigned kWidthBits = 4;

// The binomial distribution of the number of values in a block that sends each with this
// probability.
coding::SymbolModel::Weights counts_at_random(double share) {
  coding::SymbolModel::Weights weights{};
  double weight = 1;
  for (int i = 0; i < kBlock; ++i) weight *= 1 - share;
  for (int count = 0; count <= kBlock; ++count) {
    weights[count == kBlock ? 15 : count == 15 ? 14 : static_cast<std::size_t>(count)] += weight;
    weight *= share / (1 - share) * (kBlock - count) / (count + 1);
  }
  return weights;
}

coding::SymbolModel::Weights falling_levels(double decay) {
  coding::SymbolModel::Weights weights{};
  double weight = 1;
  for (double& each : weights) {
    each = weight;
    weight *= decay;
  }
  weights.back() /= 1 - decay;
  return weights;
}

template <std::size_t kCount>
std::array<coding::SymbolModel, kCount> all_alike(const coding::SymbolModel& model) {
  return [&]<std::size_t... kEach>(std::index_sequence<kEach...>) {
    return std::array<coding::SymbolModel, kCount>{((void)kEach, model)...};
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
void put_rest(coding::LaneWriter& writer, std::size_t lane, std::uint32_t rest) {
  const auto width = static_cast<unsigned>(std::bit_width(rest)) - 1;
  writer.put(lane, width, 1, kWidthBits);
  writer.put(lane, rest - (1U << width), 1, width);
}

std::uint32_t take_rest(coding::LaneReader& reader, std::size_t lane) {
  const unsigned width = reader.peek(lane, kWidthBits);
  reader.take(lane, width, 1, kWidthBits);
  const std::uint32_t low = reader.peek(lane, width);
  reader.take(lane, low, 1, width);
  return (1U << width) + low;
}

}  // namespace

BlockModels::BlockModels(double share, double decay, coding::SymbolModel::End end)
    : classes_(all_alike<kActivities>(coding::SymbolModel(counts_at_random(share), end))),
      levels_(all_alike<kLevelContexts>(coding::SymbolModel(falling_levels(decay), end))),
      activity_(static_cast<int>(share * kBlock * 128)) {}

coding::SymbolModel& BlockModels::model_of_class() {
  return classes_[kActivityOf[static_cast<unsigned>(activity_) >> kActivityShift]];
}

void BlockModels::count(std::size_t pattern_class) {
  // A moving average over about eight blocks. Division rounds towards zero, which is part of the
  // format.
  activity_ += (static_cast<int>(most_values(pattern_class)) * 128 - activity_) / 8;
}

void BlockModels::put_classes(coding::LaneWriter& writer, std::size_t first,
                              std::span<const std::uint16_t> patterns) {
  for (std::size_t i = 0; i < patterns.size(); ++i) {
    const std::size_t found = class_of(patterns[i]);
    model_of_class().put(writer, (first + i) % coding::kLanes, found);
    count(found);
  }
}

void BlockModels::take_classes(coding::LaneReader& reader, std::size_t first,
                               std::span<std::uint8_t> classes) {
  for (std::size_t i = 0; i < classes.size(); ++i) {
    const std::size_t found = model_of_class().take(reader, (first + i) % coding::kLanes);
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

void BlockModels::put_levels(coding::LaneWriter& writer, std::size_t first,
                             std::span<const std::uint16_t> patterns,
                             std::span<const std::int32_t> levels, const Grid& grid) {
  find_contexts(patterns, levels.size());
  for (std::size_t i = 0; i < levels.size(); ++i) {
    const std::size_t lane = (first + i) % coding::kLanes;
    const auto upper = static_cast<std::size_t>(levels[i]) >> grid.plain_bits;
    coding::SymbolModel& model = levels_[contexts_[i]];
    if (upper < kEscape) {
      model.put(writer, lane, upper);
    } else {
      model.put(writer, lane, kEscape);
      put_rest(writer, lane, static_cast<std::uint32_t>(upper - kEscape + 1));
    }
  }
}

void BlockModels::take_levels(coding::LaneReader& reader, std::size_t first,
                              std::span<const std::uint16_t> patterns,
                              std::span<std::int32_t> levels, const Grid& grid) {
  find_contexts(patterns, levels.size());
  const auto most = static_cast<std::uint32_t>(grid.most_level) >> grid.plain_bits;
  for (std::size_t i = 0; i < levels.size(); ++i) {
    const std::size_t lane = (first + i) % coding::kLanes;
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

}  // namespace strait::sync
