#include "kernels/quantized_matrix.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <atomic>
#include <limits>

#include "kernels/group_rules.h"
#include "kernels/kernel_tensors.h"
#include "kernels/nf4.h"
#include "kernels/parallel.h"
#include "kernels/processors.h"
#include "kernels/row_quantization.h"

namespace strait::kernels {
namespace {

constexpr std::int64_t kPlaneValues = 8;  // in a byte of a bit plane

// 0 … 7 on the device of `like`.
at::Tensor bit_numbers(const at::Tensor& like) {
  return at::arange(kPlaneValues, like.options().dtype(at::kByte));
}

at::Tensor nf4_levels(const at::Tensor& like) {
  // One copy to the device per thread, instead of one per use.
  thread_local at::Tensor levels;
  if (!levels.defined() || levels.device() != like.device()) {
    levels = on_device(at::tensor(at::ArrayRef<float>(kNf4Levels)), like.device());
  }
  return levels;
}

void dequantize_blocks(const QuantizedMatrix& matrix, const at::Tensor& values) {
  const std::int64_t count = matrix.shape.values();
  const std::int64_t blocks = nf4_blocks(count);
  const at::Tensor pairs = matrix.bytes.narrow(0, 0, (count + 1) / 2);
  const at::Tensor indices =
      at::stack({pairs.bitwise_right_shift(4), pairs.bitwise_and(15)}, 1).flatten().to(at::kInt);
  const at::Tensor sizes = matrix.bytes
                               .narrow(0, nf4_size_offset(matrix.shape),
                                       blocks * static_cast<std::int64_t>(sizeof(float)))
                               .view(at::kFloat);
  const at::Tensor of_values =
      sizes.unsqueeze(1).expand({blocks, kNf4Block}).reshape({-1}).narrow(0, 0, count);
  const at::Tensor read = nf4_levels(matrix.bytes).index_select(0, indices.narrow(0, 0, count));
  values.copy_(read.mul_(of_values).view(values.sizes()));
}

// [rows, groups, bits, bytes] to the levels [rows, groups, values].
at::Tensor levels_of_planes(const at::Tensor& planes) {
  const at::Tensor bits = planes.unsqueeze(-1)
                              .bitwise_right_shift(bit_numbers(planes))
                              .bitwise_and(1)
                              .flatten(3);  // [rows, groups, bits, values]
  at::Tensor levels = bits.select(2, 0).clone();
  for (std::int64_t plane = 1; plane < bits.size(2); ++plane) {
    levels.add_(bits.select(2, plane).bitwise_left_shift(plane));
  }
  return levels;
}

// The Hadamard transform of the last dimension, with the sums of QUANTIZED.md.
at::Tensor turned_back(at::Tensor values, int group) {
  const std::vector<std::int64_t> shape = values.sizes().vec();
  for (std::int64_t stride = 1; stride < group; stride *= 2) {
    const at::Tensor pairs = values.reshape({-1, group / (2 * stride), 2, stride});
    const at::Tensor first = pairs.select(2, 0);
    const at::Tensor second = pairs.select(2, 1);
    values = at::stack({first.add(second), first.sub(second)}, 2);
  }
  return values.reshape(shape).mul_(turn_back_factor(group));
}

// From [rows, groups] scale bytes and the top exponents [rows, 1].
at::Tensor scales_of(const at::Tensor& bytes, const at::Tensor& tops, int bits) {
  const at::Tensor codes = bytes.to(at::kInt)
                               .add_(tops.to(at::kInt), 8)
                               .sub_(247)
                               .clamp_(kLowestScaleCode, 8 * (248 - bits));
  at::Tensor scales = codes.bitwise_left_shift(20).view(at::kFloat);
  scales = scales.masked_fill(bytes.eq(kZeroGroup), 0);
  return scales.masked_fill_(bytes.eq(kRefusedGroup), std::numeric_limits<double>::quiet_NaN());
}

struct Groups {
  std::int64_t first = 0;
  std::int64_t count = 0;
  std::int64_t values = 0;  // of each group
  std::int64_t planes = 0;  // where the planes of the first group begin in a row
};

// `rows`: uint8 [rows, bytes of a row].
void read_groups(const at::Tensor& rows, const GroupFormat& format, std::int64_t all,
                 const Groups& groups, const at::Tensor& into) {
  const std::int64_t plane_bytes = (groups.values + kPlaneValues - 1) / kPlaneValues;
  const at::Tensor planes = rows.narrow(1, groups.planes, groups.count * format.bits * plane_bytes)
                                .reshape({rows.size(0), groups.count, format.bits, plane_bytes});
  const at::Tensor scales =
      scales_of(rows.narrow(1, 1 + groups.first, groups.count), rows.narrow(1, 0, 1), format.bits);
  const at::Tensor levels = levels_of_planes(planes).narrow(2, 0, groups.values);
  // Every odd multiple of a scale is exact.
  at::Tensor values =
      levels.to(at::kFloat).mul_(2).sub_(levels_of(format.bits) - 1).mul_(scales.unsqueeze(-1));
  if (format.rotate && groups.values == format.group) {
    const std::int64_t bytes = (all + 7) / 8;
    const at::Tensor flags = rows.narrow(1, flags_offset(all), bytes)
                                 .unsqueeze(-1)
                                 .bitwise_right_shift(bit_numbers(rows))
                                 .bitwise_and(1)
                                 .flatten(1)
                                 .narrow(1, groups.first, groups.count);
    values =
        at::where(flags.to(at::kBool).unsqueeze(-1), turned_back(values, format.group), values);
  }
  into.narrow(1, groups.first * format.group, groups.count * groups.values)
      .copy_(values.flatten(1));
}

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
  parallel_for(count, std::max<std::int64_t>(1, kValuesOfTask / values_of_each), work);
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

void dequantize_by_operators(const QuantizedMatrix& matrix, const at::Tensor& values) {
  const at::NoGradGuard no_grad;
  if (values.numel() == 0) return;
  if (matrix.shape.format == MatrixFormat::nf4) return dequantize_blocks(matrix, values);
  const GroupFormat format = group_format_of(matrix.shape.format);
  const std::int64_t columns = matrix.shape.columns;
  const std::int64_t all = groups_of(format, columns);
  const std::int64_t whole = columns / format.group;
  const at::Tensor rows = matrix.bytes.view({matrix.shape.rows, token_bytes(format, columns)});
  const std::int64_t planes = planes_offset(format, all);
  if (whole > 0) read_groups(rows, format, all, {0, whole, format.group, planes}, values);
  if (whole == all) return;
  read_groups(rows, format, all,
              {whole, 1, columns - whole * format.group,
               planes + whole * format.bits * (format.group / kPlaneValues)},
              values);
}

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
