#include "framework/sync/strength.h"

#include <fmt/format.h>

#include <array>

namespace strait::sync {
namespace {

constexpr Strength kFresh{0.5, 0.5, 4};

}  // namespace

std::string Strength::text() const { return fmt::format("{}/{}/{}", random, top, bits); }

bool long_enough_for_momentum(double random, std::int64_t steps) {
  constexpr double kLooks = 100;
  return steps == 0 || random * static_cast<double>(steps) >= kLooks;
}

std::span<const Strength> strengths(std::int64_t steps) {
  // Below a quarter of the coordinates, signs of all tell more for their bytes than the largest do.
  static constexpr std::array kInLongRuns = {kFresh, Strength{0.12, 1, 1}, Strength{0.08, 1, 1}};
  static constexpr std::array kInShortRuns = {kFresh, Strength{0.25, 0.35, 4}, Strength{0.25, 1, 1},
                                              Strength{0.12, 1, 1}, Strength{0.08, 1, 1}};
  constexpr double kBestWithMomentum = 0.12;
  if (long_enough_for_momentum(kBestWithMomentum, steps)) return kInLongRuns;
  return kInShortRuns;
}

}  // namespace strait::sync
