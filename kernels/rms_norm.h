#pragma once

#include <ATen/core/Tensor.h>

namespace strait::kernels {

// x / √(mean(x²) + epsilon) over the last dimension, times weight [width], differentiable. Computed
// in float32 for every type of input. `weight` is a leaf; its gradient is added in place.
struct RmsNormRules {
  double epsilon = 1e-6;
  // Multiply by 1 + weight before the result is rounded to the input's type. Otherwise the
  // normalised value is rounded first, then multiplied.
  bool one_plus_weight = false;
};
at::Tensor rms_norm(const at::Tensor& input, const at::Tensor& weight, const RmsNormRules& rules);

}  // namespace strait::kernels
