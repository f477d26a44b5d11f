#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "kernels/group_format.h"

namespace c10 {
struct Device;
}

namespace strait::kernels {

// What quantize(), dequantize(), quantize_change() and apply_change() do on a CPU row by row, for
// all rows of a message on a GPU: to the same bits, in one launch (of kRowsPerLaunch rows). Calls
// queue work on `stream`, a cudaStream_t, and return: they wait for nothing, allocate nothing and
// copy nothing. Every pointer is memory that the GPU reaches: its own, or pinned memory of the
// host. What has to outlive the queued work is that memory; the structs are copied. Throw
// std::runtime_error with CUDA's own words, or where this build has no CUDA.

// Whether this build's kernels run on that device: they are CUDA's, and the GPU and its driver are
// no older than what they were built for.
bool gpu_kernels_run_on(const c10::Device& device);

inline constexpr int kRowsPerLaunch = 48;

// A row of a message.
struct GpuRow {
  void* values = nullptr;  // [tokens, width], aligned to its element: read, or written
  // token_bytes() per token, at any address. Each byte is written once, 16 at a time, so that
  // pinned memory is as good a destination as the GPU's own.
  std::byte* payload = nullptr;
  // Null: the values themselves are in the payload. Otherwise their change since this entry, at any
  // address; best at a multiple of 16. Its bytes are read once and written once.
  std::byte* entry = nullptr;
  std::int64_t tokens = 0;
  GroupFormat format;
  bool fresh = false;  // there is no entry yet; the change is counted from zero
  Draw draw;           // encode_rows() only
};

// What the rows of a message have in common.
struct RowShape {
  Element element = Element::float32;
  std::int64_t width = 0;
};

// The sums of a message, to be read when the stream has come past the call: a step later, say.
// The same input gives the same bits. Not asked for: nothing is added up.
struct RowSums {
  SquareSums* rows = nullptr;  // one per row, overwritten
  // sums_scratch_bytes() of the GPU's own memory, zeroed before its first use and left alone.
  std::byte* scratch = nullptr;
};
// For that many tokens in all rows of a message together.
constexpr std::int64_t sums_scratch_bytes(std::int64_t tokens) {
  return std::int64_t{4} * kRowsPerLaunch + 16 * tokens;
}

// A token's message is put together in the shared memory of a multiprocessor: with 8 bits up to
// 44,000 values wide on any GPU, several times that on larger ones.
void encode_rows(void* stream, const RowShape& shape, std::span<const GpuRow> rows,
                 const RowSums& sums);
void decode_rows(void* stream, const RowShape& shape, std::span<const GpuRow> rows);

}  // namespace strait::kernels
