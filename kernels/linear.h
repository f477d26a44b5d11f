#pragma once

#include <ATen/core/Tensor.h>

namespace strait::kernels {

// input [rows, in] · matrix + bias, differentiable. `weight` is a leaf: [out, in], or [in, out]
// with `input_first`; `bias` is a leaf [out] or undefined. The backward adds the gradients of
// weight and bias in place (leaf_gradient.h) and computes only those that are asked for: none for a
// frozen leaf, none for an input without a gradient.
at::Tensor linear(const at::Tensor& input, const at::Tensor& weight, const at::Tensor& bias,
                  bool input_first);

}  // namespace strait::kernels
