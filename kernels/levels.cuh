#pragma once

#include "kernels/chunks.cuh"

// From values to levels.
namespace strait::kernels {

__device__ inline int level_of(float value, float inverse, int bits, const Draw& draw,
                               std::uint64_t words, std::uint32_t index) {
  const auto highest = static_cast<float>(levels_of(bits) - 1);
  float level = __fmul_rn(value, inverse);
  if (draw.rounding != Rounding::stochastic) {
    level = __fadd_rn(level, static_cast<float>(levels_of(bits - 1)));
  } else {
    level = __fadd_rn(level, 0.5F * highest);
    level = __fadd_rn(level, static_cast<float>(draw_of(words, index)) * kDrawUnit);
  }
  return static_cast<int>(fminf(fmaxf(level, 0.0F), highest));
}

// The scale code of each part's group with which its levels are chosen; parts of zeros and refused
// groups have any.
__device__ inline void rounding_codes(const Chunk& values, int group, float reach,
                                      std::uint16_t* codes) {
  std::uint32_t largest[kParts];
  largest_bits(values, group, largest);
  for (int p = 0; p < kParts; ++p) codes[p] = scale_code_of(float_of_bits(largest[p]), reach);
}

}  // namespace strait::kernels
