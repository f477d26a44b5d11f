#pragma once

#include <string_view>

#include "kernels/gpu_rows.h"
#include "kernels/group_format.h"

// The operations of row_quantization.h, gpu_rows.h and quantized_matrix.h without checks; callers
// use those headers. Absence is a file: without CUDA, no_cuda.cpp replaces the .cu files.
namespace strait::kernels {

namespace cpu {
void quantize(const Values& values, const GroupFormat& format, const Draw& draw, std::byte* out,
              SquareSums* sums);
void dequantize(const std::byte* in, const GroupFormat& format, const MutableValues& out);
void quantize_change(const Values& values, const GroupFormat& format, const Draw& draw, bool fresh,
                     std::byte* entry, std::byte* out, SquareSums* sums);
void apply_change(const std::byte* in, const GroupFormat& format, bool fresh, std::byte* entry,
                  const MutableValues& out);
void store_entry(const Values& values, std::byte* entry);
void load_entry(const std::byte* entry, const MutableValues& out);
}  // namespace cpu

namespace cuda {
// The libtorch device type that these run on ("cuda"); empty: none.
std::string_view device_type();
// For the current device of the calling thread.
bool has_image();
void encode_rows(void* stream, const RowShape& shape, std::span<const GpuRow> rows,
                 const RowSums& sums);
void decode_rows(void* stream, const RowShape& shape, std::span<const GpuRow> rows);
// dequantize_nf4() of nf4.h on a GPU, queued on the stream. Levels are read four bytes at a time,
// up to a multiple of that.
void dequantize_nf4(void* stream, const std::uint8_t* levels, const float* sizes,
                    std::int64_t count, void* values, Element element);
}  // namespace cuda

}  // namespace strait::kernels
