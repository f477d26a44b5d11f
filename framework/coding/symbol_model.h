#pragma once

#include "framework/coding/lane_coder.h"

namespace strait::coding {

// An adaptive model of kSymbols symbols: both ends begin with the same frequencies and count the
// same symbols, so no table is sent. Frequencies are rebuilt from the counts at growing intervals;
// between two rebuilds a symbol costs a table look-up.
class SymbolModel {
 public:
  static constexpr std::size_t kSymbols = 16;
  using Weights = std::array<double, kSymbols>;
  enum class End : std::uint8_t { writer, reader };

  // The initial frequencies, with any sum.
  SymbolModel(const Weights& weights, End end);

  void put(LaneWriter& writer, std::size_t lane, std::size_t symbol) {
    writer.put(lane, starts_[symbol], size_of(symbol), kBits);
    learn(symbol);
  }
  std::size_t take(LaneReader& reader, std::size_t lane) {
    const std::size_t symbol = symbols_[reader.peek(lane, kBits)];
    reader.take(lane, starts_[symbol], size_of(symbol), kBits);
    learn(symbol);
    return symbol;
  }

 private:
  static constexpr unsigned kBits = 12;
  static constexpr std::uint32_t kScale = std::uint32_t{1} << kBits;

  std::uint32_t size_of(std::size_t symbol) const {
    return static_cast<std::uint32_t>(starts_[symbol + 1] - starts_[symbol]);
  }
  void learn(std::size_t symbol) {
    counts_[symbol] += kOne;
    if (--left_ == 0) renew();
  }
  void renew();
  void rebuild();

  // Weight of a symbol in counts_, so that old ones can be halved.
  static constexpr std::uint32_t kOne = 32;

  std::array<std::uint32_t, kSymbols> counts_{};
  // The cumulative frequency below each symbol; each has a frequency of one at least.
  std::array<std::uint16_t, kSymbols + 1> starts_{};
  std::uint32_t left_;      // symbols until the next rebuild
  std::uint32_t interval_;  // symbols between two rebuilds
  bool reads_;
  // A reader's symbol of each cumulative frequency.
  std::array<std::uint8_t, kScale> symbols_;
};

// Adaptive models of rows of levels, whole numbers that are small most of the time. Both ends begin
// with the same expected sizes and count the same levels. The context of a level is the size to be
// expected of it: that of its column in the rows before, corrected by how large the row's last
// levels were beside theirs. So columns and rows may differ in size by any factor.
class LevelModels {
 public:
  static constexpr std::int32_t kMost = 1 << 14;  // the largest size of a level
  static constexpr std::uint32_t kOne = 64;       // the size 1 in `sizes`

  // The initial sizes of the columns.
  LevelModels(std::vector<std::uint32_t> sizes, SymbolModel::End end);

  // A row of a level for each column, of at most kMost.
  void put(LaneWriter& writer, std::span<const std::int32_t> row);
  // Any bytes are some levels within kMost.
  void take(LaneReader& reader, std::span<std::int32_t> row);

 private:
  SymbolModel& model_of(std::size_t column);
  void learn(std::size_t column, std::int32_t level);

  std::vector<SymbolModel> models_;   // by context
  std::vector<std::uint32_t> sizes_;  // a moving average of each column
  // of the row's last levels: what they were, and what was expected of them
  std::uint32_t seen_ = 0;
  std::uint32_t expected_ = 0;
};

}  // namespace strait::coding
