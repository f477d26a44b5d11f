#pragma once

#include <optional>
#include <utility>

#include "kernels/quantized_matrix.h"

namespace strait::kernels {

// The matrix of a product: a leaf, or a frozen quantised matrix. The latter is dequantised for
// every use, forward and backward, to the type of the input, in memory of the thread: one such
// matrix exists at a time.
struct Weight {
  Weight() = default;
  // NOLINTNEXTLINE(google-explicit-constructor)
  Weight(at::Tensor tensor, std::optional<QuantizedShape> shape = std::nullopt)
      : kept(std::move(tensor)), quantized(shape) {}

  at::Tensor kept;  // the leaf, or the quantised bytes
  std::optional<QuantizedShape> quantized;
};

// input [rows, in] · matrix + bias, differentiable, in the type of the input. `weight` is [out,
// in], or [in, out] with `input_first`; `bias` is a leaf [out] or undefined. The backward adds the
// gradients of weight and bias in place (leaf_gradient()) and computes only required ones: none for
// a frozen leaf, none for an input without a gradient. The weight's may be queued
// (weight_gradient_queue.h), as may those of both matrices of an adapter.
at::Tensor linear(const at::Tensor& input, const Weight& weight, const at::Tensor& bias,
                  bool input_first);

// The low-rank product that is added to a product: scale · (input · downᵀ) · upᵀ.
struct LowRank {
  at::Tensor down;  // leaf [rank, in]
  at::Tensor up;    // leaf [out, rank]
  double scale = 1;
  at::Tensor input;  // [rows, in]: the input of the matrix, possibly after dropout
};

// linear() with a low-rank product added, in the memory of its result. Keeps only the small product
// for the backward.
at::Tensor adapted_linear(const at::Tensor& input, const Weight& weight, const at::Tensor& bias,
                          bool input_first, const LowRank& low);

// The norm of what each output of a matrix is computed with, float32 [out], without a gradient: of
// the matrix [in, out] with `low` added, which may be null.
at::Tensor output_norms(const Weight& weight, bool input_first, const LowRank* low);

// product [rows, out] · to / norms + bias, differentiable but for `norms`; the leaves are `to`
// [out] and `bias`, which may be undefined. Keeps the product for the backward.
at::Tensor scale_outputs(const at::Tensor& product, const at::Tensor& to, const at::Tensor& norms,
                         const at::Tensor& bias);

// The matrix as it is stored, in this type. Of a quantised one the values are valid until the
// thread's next product with such a matrix.
at::Tensor stored_matrix(const Weight& weight, at::ScalarType type);

}  // namespace strait::kernels
