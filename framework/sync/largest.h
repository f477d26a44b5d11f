#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "framework/sync/grid.h"

namespace strait::sync {

// A float's bits without its sign, which sort as the floats do; zero for what counts as zero.
// Compared as signed numbers, which processors are quicker at.
inline std::int32_t magnitude_of(float value) {
  const auto bits = static_cast<std::int32_t>(std::bit_cast<std::uint32_t>(value) & 0x7FFFFFFFU);
  return bits < std::bit_cast<std::int32_t>(kLeastMagnitude) ? 0 : bits;
}

// What separates the `wanted` largest of some values from the others, by magnitude: everything
// above `least`, and the first `ties` of those that are equal to it. Zeros are never among the
// largest, so there may be fewer.
struct Largest {
  std::int32_t least = 0;  // 0: none are wanted, or all are zero
  std::size_t ties = 0;
  std::size_t count = 0;  // of those that are taken
};

using Stretches = std::span<const std::span<const float>>;

// One pass and a look at what lies near the threshold. A function of the values and their order, on
// every machine. `near` is memory to work in, and behind that holds all that is equal to the least.
Largest largest_of(Stretches values, std::size_t wanted, std::vector<std::int32_t>& near);

}  // namespace strait::sync
