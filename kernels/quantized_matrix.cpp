#include "kernels/quantized_matrix.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>

#include <algorithm>
#include <atomic>

#include "kernels/kernel_tensors.h"
#include "kernels/matrix_operators.h"
#include "kernels/nf4.h"
#include "kernels/processors.h"
#include "kernels/row_quantization.h"

namespace strait::kernels {
namespace {

constexpr std::int64_t kValuesOfTask = 1 << 16;  // from here on another thread pays off

void check_sizes(const QuantizedMatrix& matrix, const at::Tensor& values) {
  TORCH_INTERNAL_ASSERT(values.device() == matrix.bytes.device() && values.is_contiguous() &&
                            values.dim() == 2 && values.size(0) == matrix.shape.rows &&
                            values.size(1) == matrix.shape.columns,
                        "values ", values.sizes(), " of a matrix [", matrix.shape.rows, ", ",
                        matrix.shape.columns, "]");
}

// Calls `work(first, last)` for parts of 0 … count on all threads.
template <class Work>
void in_parts(std::int64_t count, std::int64_t values_of_each, Work work) {
  at::parallel_for(0, count, std::max<std::int64_t>(1, kValuesOfTask / values_of_each), work);
}

bool quantize_rows(const at::Tensor& values, const QuantizedMatrix& matrix) {
  const GroupFormat groups = group_format_of(matrix.shape.format);
  const std::int64_t columns = matrix.shape.columns;
  const auto* from = static_cast<const std::byte*>(values.const_data_ptr());
  auto* to = static_cast<std::byte*>(matrix.bytes.mutable_data_ptr());
  const std::int64_t width = columns * bytes_of(element_of(values.scalar_type()));
  std::atomic<std::int64_t> refused = 0;
  in_parts(matrix.shape.rows, columns, [&](std::int64_t first, std::int64_t last) {
    SquareSums sums;
    quantize({from + first * width, element_of(values.scalar_type()), last - first, columns},
             groups, {}, to + first * token_bytes(groups, columns), &sums);
    refused += sums.refused_groups;
  });
  return refused == 0;
}

bool quantize_blocks(const at::Tensor& values, const QuantizedMatrix& matrix) {
  const std::int64_t count = matrix.shape.values();
  const std::int64_t size = bytes_of(element_of(values.scalar_type()));
  const auto* from = static_cast<const std::byte*>(values.const_data_ptr());
  auto* levels = matrix.bytes.mutable_data_ptr<std::uint8_t>();
  auto* sizes = reinterpret_cast<float*>(levels + nf4_size_offset(matrix.shape));
  std::fill(levels + (count + 1) / 2, levels + nf4_size_offset(matrix.shape), std::uint8_t{0});
  std::atomic<bool> fine = true;
  in_parts(nf4_blocks(count), kNf4Block, [&](std::int64_t first, std::int64_t last) {
    const std::int64_t begin = first * kNf4Block;
    const std::int64_t end = std::min(last * kNf4Block, count);
    if (!quantize_nf4(from + begin * size, element_of(values.scalar_type()), end - begin,
                      levels + begin / 2, sizes + first)) {
      fine = false;
    }
  });
  return fine;
}

void dequantize_by_kernels(const QuantizedMatrix& matrix, const at::Tensor& values) {
  void* const stream = stream_of(values);
  const Element element = element_of(values.scalar_type());
  const QuantizedShape& shape = matrix.shape;
  if (shape.format == MatrixFormat::nf4) {
    const auto* levels = matrix.bytes.const_data_ptr<std::uint8_t>();
    const auto* sizes = reinterpret_cast<const float*>(levels + nf4_size_offset(shape));
    return cuda::dequantize_nf4(stream, levels, sizes, shape.values(), values.mutable_data_ptr(),
                                element);
  }
  GpuRow row;
  row.values = values.mutable_data_ptr();
  // It is only read.
  row.payload = static_cast<std::byte*>(matrix.bytes.mutable_data_ptr());
  row.tokens = shape.rows;
  row.format = group_format_of(shape.format);
  decode_rows(stream, {element, shape.columns}, {&row, 1});
}

}  // namespace

const char* name_of(MatrixFormat format) {
  if (format == MatrixFormat::nf4) return "nf4";
  return format == MatrixFormat::int8 ? "int8" : "int4";
}

std::int64_t bytes_of(const QuantizedShape& shape) {
  if (shape.format != MatrixFormat::nf4) {
    return shape.rows * token_bytes(group_format_of(shape.format), shape.columns);
  }
  return nf4_size_offset(shape) +
         nf4_blocks(shape.values()) * static_cast<std::int64_t>(sizeof(float));
}

QuantizedMatrix make_quantized_matrix(const QuantizedShape& shape, at::Device device) {
  return {shape, at::empty({bytes_of(shape)}, at::TensorOptions(at::kByte).device(device))};
}

bool quantize_matrix(const at::Tensor& values, const QuantizedMatrix& matrix) {
  if (!matrix.bytes.is_cpu()) {
    const QuantizedMatrix here = make_quantized_matrix(matrix.shape, at::kCPU);
    const bool fine = quantize_matrix(values, here);
    matrix.bytes.copy_(here.bytes);
    return fine;
  }
  check_sizes(matrix, values);
  return matrix.shape.format == MatrixFormat::nf4 ? quantize_blocks(values, matrix)
                                                  : quantize_rows(values, matrix);
}

void dequantize_matrix(const QuantizedMatrix& matrix, const at::Tensor& values) {
  check_sizes(matrix, values);
  if (!values.is_cpu()) {
    if (!gpu_kernels_run_on(values.device())) return dequantize_by_operators(matrix, values);
    const c10::OptionalDeviceGuard on_it(values.device());
    return dequantize_by_kernels(matrix, values);
  }
  const Element element = element_of(values.scalar_type());
  const std::int64_t size = bytes_of(element);
  const auto* from = matrix.bytes.const_data_ptr<std::uint8_t>();
  auto* to = static_cast<std::byte*>(values.mutable_data_ptr());
  if (matrix.shape.format == MatrixFormat::nf4) {
    const auto* sizes = reinterpret_cast<const float*>(from + nf4_size_offset(matrix.shape));
    const std::int64_t count = matrix.shape.values();
    return in_parts(nf4_blocks(count), kNf4Block, [&](std::int64_t first, std::int64_t last) {
      const std::int64_t begin = first * kNf4Block;
      const std::int64_t end = std::min(last * kNf4Block, count);
      dequantize_nf4(from + begin / 2, sizes + first, end - begin, to + begin * size, element);
    });
  }
  const GroupFormat groups = group_format_of(matrix.shape.format);
  const std::int64_t width = matrix.shape.columns;
  const auto* bytes = reinterpret_cast<const std::byte*>(from);
  in_parts(matrix.shape.rows, width, [&](std::int64_t first, std::int64_t last) {
    dequantize(bytes + first * token_bytes(groups, width), groups,
               {to + first * width * size, element, last - first, width});
  });
}

}  // namespace strait::kernels
