#pragma once

#include <ATen/core/Tensor.h>

namespace strait::kernels {

// For backward functions that add a parameter's gradient in place instead of returning it, so that
// no temporary of a large parameter's size exists for every micro-batch.

// The gradient of `leaf`, made of zeros if there is none. It may be wider than the leaf: float32
// for a bfloat16 parameter.
at::Tensor& leaf_gradient(const at::Tensor& leaf);

// Runs the hook that autograd runs after its own accumulation. Call once per backward function,
// after the addition.
void announce_leaf_gradient(const at::Tensor& leaf);

// sum += scale · left · right, in the type of `sum`. Products of a narrower type are added in
// pieces.
void add_product(const at::Tensor& sum, const at::Tensor& left, const at::Tensor& right,
                 double scale = 1);

}  // namespace strait::kernels
