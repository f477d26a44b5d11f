#pragma once

#include <bit>

#include "framework/sync/grid.h"
#include "framework/sync/random_choice.h"

namespace strait::sync {

// A float's bits without its sign, which sort as the magnitudes do; zero for what counts as zero
// (grid.h). Signed, because processors compare signed numbers faster.
inline std::int32_t magnitude_of(float value) {
  const auto bits = static_cast<std::int32_t>(std::bit_cast<std::uint32_t>(value) & 0x7FFFFFFFU);
  return bits < std::bit_cast<std::int32_t>(kLeastMagnitude) ? 0 : bits;
}

// The threshold of the `wanted` largest magnitudes: all above `least`, and the first `ties` of
// those that equal it. Zeros are never among the largest, so there may be fewer.
struct Largest {
  std::int32_t least = 0;  // 0: none is wanted, or all are zero
  std::size_t ties = 0;
  std::size_t count = 0;  // of the largest
};

using Stretches = std::span<const std::span<const float>>;

// One pass over the values and a selection among those near the threshold. A function of the values
// and their order on every machine. `near` is scratch memory; afterwards it holds all magnitudes
// that equal the least.
Largest largest_of(Stretches values, std::size_t wanted, std::vector<std::int32_t>& near);

// The largest values of some blocks, without those of dense blocks.
struct TopValues {
  std::vector<std::uint16_t> patterns;  // by block that is not dense: bit i: value i is selected
  std::vector<float> values;            // the selected ones, one after the other
  float least = 0;                      // of their magnitudes; 0: none is selected
  double mean = 0;                      // of their magnitudes, summed in a fixed order
  double share = 0;                     // of all values that are not dense
  // Scratch memory.
  std::vector<std::int32_t> near;
  std::vector<std::uint8_t> marks;
};

// Selects exactly the share `top`, rounded, but one value at least; of equal ones the first. What
// counts as zero is never selected. `values`: kGrain of each block, zero in padding. Replaces the
// content of `selected` and reuses its memory.
void select_top(std::span<const Block> blocks, std::span<const float> values, double top,
                TopValues& selected);

}  // namespace strait::sync
