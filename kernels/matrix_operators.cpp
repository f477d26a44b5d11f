#include "kernels/matrix_operators.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include <limits>

#include "kernels/group_rules.h"
#include "kernels/host_values.h"
#include "kernels/nf4.h"

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

}  // namespace strait::kernels
