#include "framework/sync/block_pattern.h"

#include <array>

namespace strait::sync {
namespace {

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

}  // namespace strait::sync
