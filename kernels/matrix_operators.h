#pragma once

#include "kernels/group_format.h"
#include "kernels/quantized_matrix.h"

namespace strait::kernels {

// Groups with outliers are rotated if levels are few: one bit per group saves a tenth of the error
// of Gaussian weights, and a third of the error of heavy tails.
constexpr GroupFormat group_format_of(MatrixFormat format) {
  return format == MatrixFormat::int8 ? GroupFormat{8, 64, false} : GroupFormat{4, 64, true};
}

// The levels of nf4 come first, then the sizes of blocks, aligned.
inline std::int64_t nf4_size_offset(const QuantizedShape& shape) {
  return (shape.values() + 7) / 8 * 4;
}

// dequantize_matrix() by libtorch's operators, for any device: the same bits as on the CPU.
void dequantize_by_operators(const QuantizedMatrix& matrix, const at::Tensor& values);

}  // namespace strait::kernels
