#pragma once

#include <ATen/core/Tensor.h>

namespace strait::kernels {

// input [rows, in] · matrix + bias, differentiable. `weight` is a leaf: [out, in], or [in, out]
// with `input_first`; `bias` is a leaf [out] or undefined. The backward adds the gradients of
// weight and bias in place (leaf_gradient.h) and computes only those that are asked for: none for a
// frozen leaf, none for an input without a gradient. The weight's may be queued
// (weight_gradient_queue.h); of an adapter those of both its matrices.
at::Tensor linear(const at::Tensor& input, const at::Tensor& weight, const at::Tensor& bias,
                  bool input_first);

// What is added to a product with a matrix: scale · (input · downᵀ) · upᵀ.
struct LowRank {
  at::Tensor down;  // leaf [rank, in]
  at::Tensor up;    // leaf [out, rank]
  double scale = 1;
  at::Tensor input;  // [rows, in]: the input of the matrix, or that after a dropout
};

// linear() with a low-rank product added, in the memory of its result. Keeps no more than the small
// product for the backward.
at::Tensor adapted_linear(const at::Tensor& input, const at::Tensor& weight, const at::Tensor& bias,
                          bool input_first, const LowRank& low);

}  // namespace strait::kernels
