#pragma once

#include <cstdint>

#include "kernels/linear.h"

namespace strait::kernels {

// input [rows, in] · matrix + bias, without gradients: every row has the same bits with any number
// of other rows and of threads. `matrix` is [out, in], or [in, out] with `input_first`; `bias` is
// [out] or undefined. On the CPU in float32 the order of a sum depends on `in` and the instruction
// set; elsewhere rows are padded to a multiple of 8: then libraries round each alike.
at::Tensor row_product(const at::Tensor& input, const at::Tensor& matrix, const at::Tensor& bias,
                       bool input_first);

// The same for a matrix that may be quantised, with a low-rank product added; null: none.
at::Tensor row_linear(const at::Tensor& input, const Weight& weight, const at::Tensor& bias,
                      bool input_first, const LowRank* low);

// The same for a matrix of each head: input [rows, heads, in] and matrices [heads, out, in], or
// [heads, in, out] with `input_first`, to [rows, heads, out].
at::Tensor row_products(const at::Tensor& input, const at::Tensor& matrices, bool input_first);

// Attention of one token to latents that all heads share, without gradients: query [heads, width]
// and latents [tokens, width] to each head's sum of the first `rank` values of latents, [heads,
// rank]. Products are row_product(), so that bits do not depend on threads.
at::Tensor latent_attention(const at::Tensor& query, const at::Tensor& latents, std::int64_t rank,
                            double scale);

namespace cpu {
// Contiguous float32.
struct RowProduct {
  const float* input = nullptr;
  const float* matrix = nullptr;
  const float* bias = nullptr;  // null: none
  float* product = nullptr;     // [rows, outputs]
  std::int64_t rows = 0;
  std::int64_t width = 0;  // of the input
  std::int64_t outputs = 0;
  bool input_first = false;
};
// The columns `first` to `last` of the product.
void row_product(const RowProduct& all, std::int64_t first, std::int64_t last);
// The same of a matrix [out, in].
void dot_product(const RowProduct& all, std::int64_t first, std::int64_t last);
}  // namespace cpu

}  // namespace strait::kernels
