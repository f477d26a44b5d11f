#include "framework/sync/symbol_model.h"

#include <algorithm>
#include <numeric>

namespace strait::sync {
namespace {

// What the first guess is worth, in symbols.
constexpr double kTrust = 24;
// Soon at first, for packets of a kilobyte.
constexpr std::uint32_t kFirstStretch = 16;
constexpr std::uint32_t kLastStretch = 512;
// Older symbols count half when there are so many.
constexpr std::uint32_t kRemembered = 2048;

}  // namespace

SymbolModel::SymbolModel(const Weights& weights, End end)
    : left_(kFirstStretch), stretch_(kFirstStretch), reads_(end == End::reader) {
  const double sum = std::accumulate(weights.begin(), weights.end(), 0.0);
  for (std::size_t i = 0; i < kSymbols; ++i) {
    counts_[i] = static_cast<std::uint32_t>(sum > 0 ? weights[i] / sum * kTrust * kOne : kOne);
  }
  deal_out();
}

void SymbolModel::renew() {
  deal_out();
  if (std::accumulate(counts_.begin(), counts_.end(), 0U) >= kRemembered * kOne) {
    for (std::uint32_t& count : counts_) count /= 2;
  }
  left_ = stretch_;
  stretch_ = std::min(2 * stretch_, kLastStretch);
}

// One place for each, so that no symbol is ever impossible; the others by counts, and what rounding
// leaves to the one that has most.
void SymbolModel::deal_out() {
  const std::uint32_t sum = std::max(std::accumulate(counts_.begin(), counts_.end(), 0U), 1U);
  std::array<std::uint32_t, kSymbols> sizes{};
  std::uint32_t dealt = 0;
  for (std::size_t i = 0; i < kSymbols; ++i) {
    sizes[i] = 1 + counts_[i] * std::uint64_t{kPlaces - kSymbols} / sum;
    dealt += sizes[i];
  }
  *std::max_element(sizes.begin(), sizes.end()) += kPlaces - dealt;
  for (std::size_t i = 0; i < kSymbols; ++i) {
    below_[i + 1] = static_cast<std::uint16_t>(below_[i] + sizes[i]);
    if (reads_) {
      std::fill(owners_.begin() + below_[i], owners_.begin() + below_[i + 1],
                static_cast<std::uint8_t>(i));
    }
  }
}

}  // namespace strait::sync
