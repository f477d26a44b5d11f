#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

namespace strait::kernels {

// Which two values of a head are rotated by one angle.
enum class RotaryPairs : std::uint8_t {
  halves,      // i and i + d/2 of the d rotated values
  neighbours,  // 2i and 2i + 1
};

// Rotary position embedding of heads [rows, length, heads, width], differentiable. `cosine` and
// `sine` are [rows, length, d/2]: the first d values of each head are rotated, and the others pass
// through. The tables are first rounded to the type of `heads`.
at::Tensor rotate_heads(const at::Tensor& heads, const at::Tensor& cosine, const at::Tensor& sine,
                        RotaryPairs pairs);

}  // namespace strait::kernels
