#include "framework/sync/symbol_model.h"

#include <algorithm>
#include <bit>
#include <numeric>

namespace strait::sync {
namespace {

// A symbol moves every probability by 2^-5 of the way at first, later by 2^-7: quick enough for
// packets of a kilobyte, steady enough not to cost large ones.
constexpr unsigned kFirstRate = 5;
constexpr unsigned kLastRate = 7;
constexpr std::uint32_t kQuick = 32;

using Places = std::array<std::int16_t, SymbolModel::kSymbols>;

// Where the places would be if nothing but one symbol ever came: one place for each other.
constexpr std::array<Places, SymbolModel::kSymbols> kTargets = [] {
  std::array<Places, SymbolModel::kSymbols> targets{};
  for (std::size_t symbol = 0; symbol < targets.size(); ++symbol) {
    for (std::size_t i = 0; i < targets.size(); ++i) {
      const std::size_t place = i <= symbol ? i : (std::size_t{1} << 15) - targets.size() + i;
      targets[symbol][i] = static_cast<std::int16_t>(place);
    }
  }
  return targets;
}();

}  // namespace

SymbolModel::SymbolModel(const Weights& weights) {
  const double sum = std::accumulate(weights.begin(), weights.end(), 0.0);
  const double scale = sum > 0 ? (kWhole - kSymbols) / sum : 0;
  double before = 0;
  for (std::size_t i = 0; i < kSymbols; ++i) {
    below_[i] = static_cast<std::int16_t>(i + static_cast<std::size_t>(before * scale));
    before += weights[i];
  }
}

void SymbolModel::learn(std::size_t symbol) {
  const Places& target = kTargets[symbol];
  const auto ripe = static_cast<unsigned>(std::bit_width(seen_ / kQuick));
  const unsigned rate = std::min(kFirstRate + ripe, kLastRate);
  for (std::size_t i = 0; i < kSymbols; ++i) {
    below_[i] = static_cast<std::int16_t>(below_[i] + ((target[i] - below_[i]) >> rate));
  }
  ++seen_;
}

}  // namespace strait::sync
