#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "framework/sync/random_choice.h"

namespace strait::sync {

// The largest of some blocks' values, dense blocks left out, and what there is to know of them.
struct Survivors {
  std::vector<std::uint16_t> patterns;  // by block that is not dense: bit i: value i is one
  std::vector<float> values;            // one behind the other
  float least = 0;                      // of their magnitudes; 0: there are none
  double mean = 0;                      // likewise, summed in an order of its own
  double share = 0;                     // of all values that are not dense
  // Memory to work in.
  std::vector<std::int32_t> near;
  std::vector<std::uint8_t> marks;
};

// Exactly the share `top`, rounded, but one at least; of equal ones the first. What counts as zero
// (grid.h) is never among them. `values`: kGrain of each block, zero in padding. What `survivors`
// held is gone, but for its memory.
void find_survivors(std::span<const Block> blocks, std::span<const float> values, double top,
                    Survivors& survivors);

}  // namespace strait::sync
