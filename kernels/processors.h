#pragma once

#include "kernels/group_format.h"

// The operations of quantize.h, dequantize.h, quantize_change.h and apply_change.h as each
// processor does them, without checks; callers go through those headers. Absence is a file: where
// no CUDA is built in, no_cuda.cpp stands for the .cu files.
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

// All pointers but `sums` are the device's; `stream` is a cudaStream_t. Work is queued; a call with
// `sums` waits for it. Throw std::runtime_error with CUDA's own words.
namespace cuda {
void quantize(void* stream, const Values& values, const GroupFormat& format, const Draw& draw,
              std::byte* out, SquareSums* sums);
void dequantize(void* stream, const std::byte* in, const GroupFormat& format,
                const MutableValues& out);
void quantize_change(void* stream, const Values& values, const GroupFormat& format,
                     const Draw& draw, CacheFormat kind, bool fresh, std::byte* entry,
                     std::byte* out, SquareSums* sums);
void apply_change(void* stream, const std::byte* in, const GroupFormat& format, CacheFormat kind,
                  bool fresh, std::byte* entry, const MutableValues& out);
void store_entry(void* stream, const Values& values, CacheFormat kind, std::byte* entry);
void load_entry(void* stream, CacheFormat kind, const std::byte* entry, const MutableValues& out);
}  // namespace cuda

}  // namespace strait::kernels
