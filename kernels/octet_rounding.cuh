#pragma once

#include "kernels/slots.cuh"

// The level of a value, and the second scale of a group.
namespace strait::kernels {

template <int kBits>
__device__ inline int nearest_level(float steps) {
  constexpr auto highest = static_cast<float>(levels_of(kBits) - 1);
  const float level = __fadd_rn(steps, static_cast<float>(levels_of(kBits - 1)));
  return static_cast<int>(fminf(fmaxf(level, 0.0F), highest));
}

// Unbiased rounding of value `i` of a group. `first`: the index in the row of the group's first
// value.
template <int kBits>
__device__ inline int unbiased_level(float steps, std::uint64_t words, std::uint32_t first, int i) {
  if (!draws_small_values(kBits) || !(fabsf(steps) < 0.5F)) return nearest_level<kBits>(steps);
  const auto drawn = static_cast<float>(signed_draw_of(words, first, i));
  const float level = __fadd_rn(steps, static_cast<float>(levels_of(kBits - 1)));
  return static_cast<int>(__fadd_rn(level, __fmul_rn(drawn, kSignedDrawUnit)));
}

// The scale code that fits the mean square of the octet's group, of `count` values.
__device__ inline std::uint16_t fitted(const Octet& values, std::uint16_t code, int group,
                                       int count) {
  const float inverse = inverse_of(scale_of_code(code));
  Octet squares;
#pragma unroll
  for (int i = 0; i < kOctet; ++i) {
    const float steps = __fmul_rn(values.value[i], inverse);
    squares.value[i] = __fmul_rn(steps, steps);
  }
  return fitted_code(code, group_sum(squares, group), count);
}

// Unbiased rounding: the scale code that restores the length of the octet's group. `first`: the
// index of the group's first value in its row. `place`: of the octet's first value in its group.
template <int kBits>
__device__ inline std::uint16_t restored(const Octet& values, std::uint16_t code, int group,
                                         std::uint64_t words, std::uint32_t first, int place) {
  const float inverse = inverse_of(scale_of_code(code));
  Octet squares;
  Octet products;
#pragma unroll
  for (int i = 0; i < kOctet; ++i) {
    const float steps = __fmul_rn(values.value[i], inverse);
    const int level = unbiased_level<kBits>(steps, words, first, place + i);
    const int odd = 2 * level - (levels_of(kBits) - 1);
    squares.value[i] = __fmul_rn(steps, steps);
    products.value[i] = __fmul_rn(static_cast<float>(odd), steps);
  }
  const float square = group_sum(squares, group);
  const float product = group_sum(products, group);
  return restored_code(code, square, product, draw_of(words, first));
}

}  // namespace strait::kernels
