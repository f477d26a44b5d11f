#include "kernels/gpu_rows.h"

#include <c10/util/Exception.h>

#include "kernels/processors.h"
#include "kernels/row_checks.h"

namespace strait::kernels {
namespace {

enum class Part { payload, entry };

void check_rows(const RowShape& shape, std::span<const GpuRow> rows, Part part) {
  for (const GpuRow& row : rows) {
    if (part == Part::payload) check_format(row.format);
    check_row(row.values, shape.element, row.tokens, shape.width);
    const std::byte* const needed = part == Part::payload ? row.payload : row.entry;
    TORCH_INTERNAL_ASSERT(needed != nullptr || row.tokens == 0, "a row without a place for ",
                          part == Part::payload ? "its payload" : "its entry");
  }
}

}  // namespace

void encode_rows(void* stream, const RowShape& shape, std::span<const GpuRow> rows,
                 const RowSums& sums) {
  check_rows(shape, rows, Part::payload);
  TORCH_INTERNAL_ASSERT(sums.rows == nullptr || sums.scratch != nullptr, "sums without scratch");
  cuda::encode_rows(stream, shape, rows, sums);
}

void decode_rows(void* stream, const RowShape& shape, std::span<const GpuRow> rows) {
  check_rows(shape, rows, Part::payload);
  cuda::decode_rows(stream, shape, rows);
}

void store_entries(void* stream, const RowShape& shape, std::span<const GpuRow> rows) {
  check_rows(shape, rows, Part::entry);
  cuda::store_entries(stream, shape, rows);
}

void load_entries(void* stream, const RowShape& shape, std::span<const GpuRow> rows) {
  check_rows(shape, rows, Part::entry);
  cuda::load_entries(stream, shape, rows);
}

}  // namespace strait::kernels
