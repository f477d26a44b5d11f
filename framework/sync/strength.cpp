#include "framework/sync/strength.h"

#include <fmt/format.h>

#include <array>

namespace strait::sync {

std::string Strength::text() const { return fmt::format("{}/{}/{}", random, top, bits); }

bool long_enough_for_momentum(double random, std::int64_t steps) {
  constexpr double kLooks = 100;
  return steps == 0 || random * static_cast<double>(steps) >= kLooks;
}

std::span<const Strength> strengths(std::int64_t steps) {
  // Below a quarter of the coordinates, signs of all tell more for their bytes than the largest do.
  static constexpr std::array kStrengths = {Strength{0.5, 0.5, 4}, Strength{0.25, 0.35, 4},
                                            Strength{0.25, 1, 1}, Strength{0.12, 1, 1},
                                            Strength{0.08, 1, 1}};
  constexpr std::size_t kBestWithMomentum = 3;
  const std::span<const Strength> all = kStrengths;
  const bool gains = long_enough_for_momentum(all[kBestWithMomentum].random, steps);
  return gains ? all.subspan(kBestWithMomentum) : all;
}

}  // namespace strait::sync
