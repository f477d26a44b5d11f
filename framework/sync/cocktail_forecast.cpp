// What cocktail sends, how stale its results are, and which strengths suit a run.
#include <array>
#include <cmath>
#include <numbers>

#include "framework/sync/cocktail.h"

namespace strait::sync {
namespace {

// Of normally distributed values: the share of their squares that one turn transmits, if the
// largest, a share `top` of all, are sent in so many bits.
double transmitted_of_normal(double top, int bits) {
  // The loss within a level, as a share of the spread of all levels: that of an exponential whose
  // levels are 4, 2, 1, … of its means wide (grid.h). One bit has no levels.
  constexpr std::array kLost = {1.0, 0.70, 0.28, 0.079, 0.021, 0.0, 0.0, 0.0};
  // The threshold that a share `top` of the magnitudes exceeds, by bisection.
  double below = 0;
  double above = 10;
  while (above - below > 1e-9) {
    const double middle = (below + above) / 2;
    (std::erfc(middle / std::numbers::sqrt2) > top ? below : above) = middle;
  }
  const double density = std::exp(-below * below / 2) / std::sqrt(2 * std::numbers::pi);
  const double squares = top + 2 * below * density;
  const double square_of_mean = 4 * density * density / top;
  return squares - (squares - square_of_mean) * kLost[static_cast<std::size_t>(bits - 1)];
}

}  // namespace

// Positions take the entropy of a mask with so many ones; values take what packets of normal
// changes were measured to take.
Forecast Cocktail::forecast(const ForecastInput& input) {
  constexpr std::array kValueBits = {1.0, 1.1, 1.8, 2.45, 3.5, 4.5, 5.5, 6.5};
  const SyncSettings& settings = input.settings;
  const double top = settings.top;
  const double mask = top < 1 ? -top * std::log2(top) - (1 - top) * std::log2(1 - top) : 0;
  const double value = kValueBits[static_cast<std::size_t>(settings.bits - 1)];
  double bits = 0;
  for (const Piece& piece : input.layout.pieces()) {
    bits += static_cast<double>(piece.range.count()) * (piece.dense() ? value : mask + top * value);
  }
  Forecast costs = every_step(input.shard_reduce_bytes(
      settings.random * bits / 8, static_cast<double>(input.layout.zones().size())));
  // One step late, and half of the time until a coordinate is drawn again. What was not among the
  // largest then waits for the next turn, at the replicas and once more at the part's owner.
  const double turn = 1 / settings.random;
  const double transmitted = transmitted_of_normal(top, settings.bits);
  costs.staleness = 1 + (turn - 1) / 2 + 2 * turn * (1 - transmitted) / transmitted;
  return costs;
}

// By coordinates that a round covers. Selecting takes most of the time, so it matters little how
// many are sent; bare signs need no levels.
CodingCost Cocktail::coding_cost(const SyncSettings& settings) {
  return {settings.random * (settings.bits == 1 ? 50 : 72), settings.random * 30};
}

bool Cocktail::long_enough_for_momentum(double random, std::int64_t steps) {
  constexpr double kTurns = 100;
  return steps == 0 || random * static_cast<double>(steps) >= kTurns;
}

std::span<const Strength> Cocktail::strengths(std::int64_t steps) {
  static constexpr Strength kFresh{0.5, 0.5, 4};
  // Below a quarter of the coordinates, signs of all transmit more for their bytes than the largest
  // values do.
  static constexpr std::array kInLongRuns = {kFresh, Strength{0.12, 1, 1}, Strength{0.08, 1, 1}};
  static constexpr std::array kInShortRuns = {kFresh, Strength{0.25, 0.35, 4}, Strength{0.25, 1, 1},
                                              Strength{0.12, 1, 1}, Strength{0.08, 1, 1}};
  constexpr double kBestWithMomentum = 0.12;
  if (long_enough_for_momentum(kBestWithMomentum, steps)) return kInLongRuns;
  return kInShortRuns;
}

}  // namespace strait::sync
