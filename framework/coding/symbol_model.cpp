#include "framework/coding/symbol_model.h"

#include <algorithm>
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

}  // namespace strait::coding
