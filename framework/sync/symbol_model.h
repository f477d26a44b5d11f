#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "framework/sync/range_coder.h"

namespace strait::sync {

// How likely each of kSymbols symbols is, learned as they come: both ends begin with the same guess
// and see the same symbols, so nobody sends a table.
class SymbolModel {
 public:
  static constexpr std::size_t kSymbols = 16;
  using Weights = std::array<double, kSymbols>;

  SymbolModel() : SymbolModel(Weights{}) {}
  // The first guess; needs no particular sum.
  explicit SymbolModel(const Weights& weights);

  void put(RangeEncoder& encoder, std::size_t symbol) {
    encoder.put(below(symbol), below(symbol + 1) - below(symbol), kBits);
    learn(symbol);
  }
  std::size_t take(RangeDecoder& decoder) {
    const auto place = static_cast<std::int16_t>(decoder.place(kBits));
    std::size_t symbol = 0;
    for (std::size_t i = 1; i < kSymbols; ++i) symbol += below_[i] <= place ? 1U : 0U;
    decoder.take(below(symbol), below(symbol + 1) - below(symbol));
    learn(symbol);
    return symbol;
  }

 private:
  static constexpr unsigned kBits = 15;
  static constexpr std::uint32_t kWhole = std::uint32_t{1} << kBits;

  std::uint32_t below(std::size_t symbol) const {
    return symbol == kSymbols ? kWhole : static_cast<std::uint32_t>(below_[symbol]);
  }
  void learn(std::size_t symbol);

  // Places below each symbol. Strictly ascending, so that no symbol is ever impossible.
  std::array<std::int16_t, kSymbols> below_{};
  std::uint32_t seen_ = 0;
};

}  // namespace strait::sync
