#pragma once

#include <cstdint>
#include <span>
#include <string>

namespace strait::sync {

// How much of the weights' change cocktail says: a round looks at the share `random` of the
// coordinates and sends the share `top` of these, each in so many bits.
struct Strength {
  double random = 0.1;
  double top = 0.2;
  int bits = 4;

  std::string text() const;  // "0.1/0.2/4"
  bool operator==(const Strength&) const = default;
};

// Whether a run of so many steps looks at each coordinate often enough for an outer step with
// momentum to be of use. 0: nobody knows how many there are; taken for long.
bool long_enough_for_momentum(double random, std::int64_t steps);

// What is worth choosing from in a run of so many steps, gentle ones first: each sends fewer bytes
// than the one ahead of it, and is later. README.md has the figures: of several that send as much,
// the one that costs least loss; and in a run that is long enough for momentum, none that loses
// more than one that sends less.
std::span<const Strength> strengths(std::int64_t steps);

}  // namespace strait::sync
