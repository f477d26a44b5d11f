#include "kernels/gpu_rows.h"

#include <c10/core/DeviceGuard.h>
#include <c10/util/Exception.h>

#include "kernels/processors.h"
#include "kernels/row_quantization.h"

namespace strait::kernels {
namespace {

void check_rows(const RowShape& shape, std::span<const GpuRow> rows) {
  for (const GpuRow& row : rows) {
    check_format(row.format);
    check_row(row.values, shape.element, row.tokens, shape.width);
    TORCH_INTERNAL_ASSERT(row.payload != nullptr || row.tokens == 0,
                          "a row without a place for its payload");
  }
}

}  // namespace

bool gpu_kernels_run_on(const c10::Device& device) {
  if (c10::DeviceTypeName(device.type(), /*lower_case=*/true) != cuda::device_type()) return false;
  const c10::OptionalDeviceGuard on_it(device);
  return cuda::has_image();
}

void encode_rows(void* stream, const RowShape& shape, std::span<const GpuRow> rows,
                 const RowSums& sums) {
  check_rows(shape, rows);
  TORCH_INTERNAL_ASSERT(sums.rows == nullptr || sums.scratch != nullptr, "sums without scratch");
  cuda::encode_rows(stream, shape, rows, sums);
}

void decode_rows(void* stream, const RowShape& shape, std::span<const GpuRow> rows) {
  check_rows(shape, rows);
  cuda::decode_rows(stream, shape, rows);
}

}  // namespace strait::kernels
