#pragma once

#include <span>
#include <string_view>

#include "kernels/gpu_rows.h"
#include "kernels/group_format.h"

// The operations of row_quantization.h and gpu_rows.h without checks; callers go through those
// headers. Absence is a file: where no CUDA is built in, no_cuda.cpp stands for the .cu files.
namespace strait::kernels {

namespace cpu {
void quantize(const Values& values, const GroupFormat& format, const Draw& draw, std::byte* out,
              SquareSums* sums);
void dequantize(const std::byte* in, const GroupFormat& format, const MutableValues& out);
void quantize_change(const Values& values, const GroupFormat& format, const Draw& draw,
                     CacheFormat kind, bool fresh, std::byte* entry, std::byte* out,
                     SquareSums* sums);
void apply_change(const std::byte* in, const GroupFormat& format, CacheFormat kind, bool fresh,
                  std::byte* entry, const MutableValues& out);
void store_entry(const Values& values, CacheFormat kind, std::byte* entry);
void load_entry(CacheFormat kind, const std::byte* entry, const MutableValues& out);
}  // namespace cpu

namespace cuda {
// The type of libtorch's devices that these run on; empty: none.
std::string_view device_type();
bool has_image();
void encode_rows(void* stream, const RowShape& shape, std::span<const GpuRow> rows,
                 const RowSums& sums);
void decode_rows(void* stream, const RowShape& shape, std::span<const GpuRow> rows);
}  // namespace cuda

}  // namespace strait::kernels
