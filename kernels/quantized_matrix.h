#pragma once

#include <ATen/core/Tensor.h>

#include "kernels/group_format.h"
#include "kernels/matrix_format.h"

namespace strait::kernels {

const char* name_of(MatrixFormat format);            // "int8", …
std::int64_t bytes_of(const QuantizedShape& shape);  // levels and scales

// A frozen, quantised matrix.
struct QuantizedMatrix {
  QuantizedShape shape;
  at::Tensor bytes;  // uint8 [bytes_of(shape)]
};

QuantizedMatrix make_quantized_matrix(const QuantizedShape& shape, at::Device device);

// Both functions below use all threads, and give the same bits for any number of them on any
// device. Values are contiguous [rows, columns] in float32, bfloat16 or float16.

// Quantises values on the CPU, for a matrix on any device. False: a value is NaN, infinite or at
// least kHuge, and the bytes are not valid.
[[nodiscard]] bool quantize_matrix(const at::Tensor& values, const QuantizedMatrix& matrix);

// Dequantises on the matrix's device, without waiting for it.
void dequantize_matrix(const QuantizedMatrix& matrix, const at::Tensor& values);

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
