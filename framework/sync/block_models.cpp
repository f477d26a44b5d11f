#include "framework/sync/block_models.h"

#include <bit>
#include <cstring>

#include "framework/sync/sync_error.h"

namespace strait::sync {
namespace {

// One bit for each of the kBlock values of a block: whether it is sent.
constexpr std::size_t kPatterns = std::size_t{1} << 16;

// Frequencies of patterns are of 2^16.
constexpr unsigned kPatternBits = 16;
constexpr unsigned kInverseBits = 44;

struct PatternTable {
  std::array<std::uint32_t, kPatternClasses> sizes{};
  std::array<std::uint32_t, kPatternClasses> begins{};
  std::array<std::uint64_t, kPatternClasses> inverses{};  // 2^44 / sizes, rounded up
  std::array<std::uint16_t, kPatterns> indices{};         // within the class, by pattern
  std::array<std::uint16_t, kPatterns> patterns{};        // by class and index
};

PatternTable made_table() {
  PatternTable table;
  for (std::size_t i = 0; i < kPatterns; ++i) {
    const std::size_t found = class_of(static_cast<std::uint16_t>(i));
    table.indices[i] = static_cast<std::uint16_t>(table.sizes[found]++);
  }
  for (std::size_t i = 1; i < kPatternClasses; ++i) {
    table.begins[i] = table.begins[i - 1] + table.sizes[i - 1];
  }
  for (std::size_t i = 0; i < kPatternClasses; ++i) {
    table.inverses[i] = ((std::uint64_t{1} << kInverseBits) + table.sizes[i] - 1) / table.sizes[i];
  }
  for (std::size_t i = 0; i < kPatterns; ++i) {
    const std::size_t found = class_of(static_cast<std::uint16_t>(i));
    table.patterns[table.begins[found] + table.indices[i]] = static_cast<std::uint16_t>(i);
  }
  return table;
}

const PatternTable& pattern_table() {
  static const PatternTable kTable = made_table();
  return kTable;
}

// Equal frequencies for the `count` patterns of a class, of 2^16: the cumulative frequency p
// belongs to pattern p * count / 2^16, so pattern i begins at i * 2^16 / count, rounded up.
class EvenSlots {
 public:
  EvenSlots(const PatternTable& table, std::size_t pattern_class)
      : count_(table.sizes[pattern_class]), inverse_(table.inverses[pattern_class]) {}
  std::uint32_t number_at(std::uint32_t slot) const { return slot * count_ >> kPatternBits; }
  // A multiplication instead of a division, which is exact: dividends are below 2^30, and a class
  // has fewer than 2^14 patterns.
  std::uint32_t below(std::uint32_t number) const {
    const std::uint64_t dividend = (std::uint64_t{number} << kPatternBits) + count_ - 1;
    return static_cast<std::uint32_t>(dividend * inverse_ >> kInverseBits);
  }
  std::uint32_t size(std::uint32_t number) const { return below(number + 1) - below(number); }

 private:
  std::uint32_t count_;
  std::uint64_t inverse_;
};

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

void put_patterns(coding::LaneWriter& writer, std::size_t first,
                  std::span<const std::uint16_t> patterns) {
  const PatternTable& table = pattern_table();
  for (std::size_t i = 0; i < patterns.size(); ++i) {
    const EvenSlots slots(table, class_of(patterns[i]));
    const std::uint32_t number = table.indices[patterns[i]];
    writer.put((first + i) % coding::kLanes, slots.below(number), slots.size(number), kPatternBits);
  }
}

void take_patterns(coding::LaneReader& reader, std::size_t first,
                   std::span<const std::uint8_t> classes, std::span<std::uint16_t> patterns) {
  const PatternTable& table = pattern_table();
  for (std::size_t i = 0; i < classes.size(); ++i) {
    const std::size_t lane = (first + i) % coding::kLanes;
    const EvenSlots slots(table, classes[i]);
    const std::uint32_t number = slots.number_at(reader.peek(lane, kPatternBits));
    reader.take(lane, slots.below(number), slots.size(number), kPatternBits);
    patterns[i] = table.patterns[table.begins[classes[i]] + number];
  }
}

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
                        "a packet has a value of level {}, the last level is {}",
                        upper << grid.plain_bits, grid.most_level);
      }
    }
    levels[i] = static_cast<std::int32_t>(upper << grid.plain_bits);
  }
}

}  // namespace strait::sync
