#pragma once

#include <span>

#include "kernels/group_format.h"

namespace c10 {
struct Device;
}

namespace strait::kernels {

// quantize(), dequantize(), quantize_change() and apply_change() for all rows of a message on a
// GPU: the same bits as on a CPU, in one launch (per kRowsPerLaunch rows). Calls queue work on
// `stream`, a cudaStream_t, and return: they do not wait, allocate or copy. Every pointer is memory
// that the GPU can access: its own, or pinned host memory. Only that memory must outlive the queued
// work; the structs are copied. Throw std::runtime_error with CUDA's message, or if this build has
// no CUDA.

// Whether this build's kernels run on the device: it is a CUDA device, and the GPU and its driver
// are not older than the build requires.
bool gpu_kernels_run_on(const c10::Device& device);

inline constexpr int kRowsPerLaunch = 48;

// A row of a message.
struct GpuRow {
  void* values = nullptr;  // [tokens, width], aligned to its element; read or written
  // token_bytes() per token, at any address. Each byte is written once, 16 at a time, so that
  // pinned memory is as good a destination as GPU memory.
  std::byte* payload = nullptr;
  // Null: the payload has the values themselves. Otherwise it has their change since this entry, at
  // any address, best at a multiple of 16. The entry's bytes are read once and written once.
  std::byte* entry = nullptr;
  std::int64_t tokens = 0;
  GroupFormat format;
  bool fresh = false;  // there is no entry yet; the change is from zero
  Draw draw;           // encode_rows() only
};

// The common properties of the rows of a message.
struct RowShape {
  Element element = Element::float32;
  std::int64_t width = 0;
};

// The sums of a message, to be read when the stream has passed the call. The same input gives the
// same bits. Without it nothing is summed.
struct RowSums {
  SquareSums* rows = nullptr;  // one per row, overwritten
  // sums_scratch_bytes() of GPU memory, zeroed before its first use and not changed by the caller.
  std::byte* scratch = nullptr;
};
// For this many tokens in all rows of a message together.
constexpr std::int64_t sums_scratch_bytes(std::int64_t tokens) {
  return std::int64_t{4} * kRowsPerLaunch + 16 * tokens;
}

// A token's message is assembled in the shared memory of a multiprocessor. With 8 bits it may be up
// to 44,000 values wide on any GPU, and several times that on larger ones.
void encode_rows(void* stream, const RowShape& shape, std::span<const GpuRow> rows,
                 const RowSums& sums);
void decode_rows(void* stream, const RowShape& shape, std::span<const GpuRow> rows);

}  // namespace strait::kernels
