#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace strait::sync {

// What separates the `wanted` largest of some magnitudes from the others: everything above `least`,
// and the first `ties` of those that are equal to it. Zeros are never among the largest, so there
// may be fewer. A magnitude is a float's bits without its sign: they sort as the floats do.
struct Largest {
  std::uint32_t least = 0;  // 0: none are wanted, or all are zero
  std::size_t ties = 0;
  std::size_t count = 0;  // of those that are taken
};

// One pass and a look at what lies near the threshold. A function of the values and their order, on
// every machine.
Largest largest_of(std::span<const std::uint32_t> magnitudes, std::size_t wanted);

}  // namespace strait::sync
