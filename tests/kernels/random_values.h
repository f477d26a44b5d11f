#pragma once

#include <ATen/ATen.h>

#include "kernels/random.h"

namespace strait::kernels {

// Normally distributed, the same in every run. Those of a type narrower than float32 are the
// float32 ones, rounded; float64 has others.
inline at::Tensor normal_values(at::IntArrayRef sizes, std::uint64_t seed,
                                at::ScalarType type = at::kFloat) {
  const at::ScalarType drawn = type == at::kDouble ? at::kDouble : at::kFloat;
  return at::empty(sizes, drawn).normal_(0, 1, keyed_generator(seed, at::kCPU)).to(type);
}

// Of values at the same place, in float64.
inline double largest_difference(const at::Tensor& left, const at::Tensor& right) {
  return (left.to(at::kDouble) - right.to(at::kDouble)).abs().max().item<double>();
}

}  // namespace strait::kernels
