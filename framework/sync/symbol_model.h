#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "framework/sync/lane_coder.h"

namespace strait::sync {

// How likely each of kSymbols symbols is, learned as they come: both ends begin with the same guess
// and count the same symbols, so nobody sends a table. Places are dealt out anew now and then, soon
// at first: between two such times a symbol costs a look into a table.
class SymbolModel {
 public:
  static constexpr std::size_t kSymbols = 16;
  using Weights = std::array<double, kSymbols>;
  enum class End : std::uint8_t { writer, reader };

  // The first guess; needs no particular sum.
  SymbolModel(const Weights& weights, End end);

  void put(LaneWriter& writer, std::size_t lane, std::size_t symbol) {
    writer.put(lane, below_[symbol], size_of(symbol), kBits);
    learn(symbol);
  }
  std::size_t take(LaneReader& reader, std::size_t lane) {
    const std::size_t symbol = owners_[reader.place(lane, kBits)];
    reader.take(lane, below_[symbol], size_of(symbol), kBits);
    learn(symbol);
    return symbol;
  }

 private:
  static constexpr unsigned kBits = 12;
  static constexpr std::uint32_t kPlaces = std::uint32_t{1} << kBits;

  std::uint32_t size_of(std::size_t symbol) const {
    return static_cast<std::uint32_t>(below_[symbol + 1] - below_[symbol]);
  }
  void learn(std::size_t symbol) {
    counts_[symbol] += kOne;
    if (--left_ == 0) renew();
  }
  void renew();
  void deal_out();

  static constexpr std::uint32_t kOne = 32;  // of a count, so that old ones can be halved

  std::array<std::uint32_t, kSymbols> counts_{};
  std::array<std::uint16_t, kSymbols + 1>
      below_{};            // places below each symbol, which has one at least
  std::uint32_t left_;     // symbols until places are dealt out anew
  std::uint32_t stretch_;  // symbols between two such times
  bool reads_;
  std::array<std::uint8_t, kPlaces> owners_;  // the symbol of each place, at a reader
};

}  // namespace strait::sync
