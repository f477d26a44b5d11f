#pragma once

#include <algorithm>
#include <span>
#include <stdexcept>
#include <string>

#include "kernels/row_sums.cuh"

// From the host to the blocks. The emulation in tests/gpu replaces only these macros, and the name
// of the device in libtorch.
#ifndef STRAIT_LAUNCH
#define STRAIT_LAUNCH(kernel, grid, block, bytes, stream) kernel<<<grid, block, bytes, stream>>>
#define STRAIT_SHARED_MEMORY(name) extern __shared__ __align__(16) unsigned char name[]
#define STRAIT_GPU_DEVICE "cuda"
#endif

namespace strait::kernels {

inline void check_cuda(cudaError_t error, const char* call) {
  if (error == cudaSuccess) return;
  throw std::runtime_error(std::string(call) + " failed: " + cudaGetErrorString(error));
}

// The rows of a launch are passed as the kernel's argument, which may have 4 KiB on any GPU and
// driver.
struct RowTable {
  GpuRow rows[kRowsPerLaunch];
  std::int64_t first_token[kRowsPerLaunch];  // among the tokens of the launch, for the sums
  unsigned blocks[kRowsPerLaunch];
};
static_assert(sizeof(RowTable) <= 4096 - 128);

// How a launch is divided: x counts blocks of a row, y rows.
struct Cut {
  dim3 grid;
  dim3 block;
  SlotLayout slot;
  int shared_bytes = 0;
};

// At least one, which writes the sums of a row without tokens.
inline unsigned blocks_of(const GpuRow& row, unsigned slots) {
  return row.tokens == 0 ? 1U : static_cast<unsigned>((row.tokens + slots - 1) / slots);
}

// Narrow tokens share a block of four warps.
inline unsigned warps_of(std::int64_t width) {
  const std::int64_t octets = (width + kOctet - 1) / kOctet;
  return static_cast<unsigned>(std::min<std::int64_t>((octets + 31) / 32, kMostWarps));
}
inline unsigned slots_of(std::int64_t width) { return std::max(1U, 4U / warps_of(width)); }

inline Cut cut_rows(const RowShape& shape, std::span<const GpuRow> rows) {
  const unsigned threads = 32 * warps_of(shape.width);
  const unsigned slots = slots_of(shape.width);
  std::int64_t codes = 0;
  std::int64_t message = 0;
  unsigned blocks = 1;
  for (const GpuRow& row : rows) {
    codes = std::max(codes, groups_of(row.format, shape.width));
    message = std::max(message, token_bytes(row.format, shape.width));
    blocks = std::max(blocks, blocks_of(row, slots));
  }
  // Room to begin anywhere between two multiples of 16.
  const auto room = [](std::int64_t bytes) { return (bytes + 15) / 16 * 16 + 16; };
  const std::int64_t message_at = sizeof(WarpResults) + room(codes * 2);
  const std::int64_t end = message_at + room(message);
  const std::int64_t bytes = end * slots + room(sizeof(RowResults));
  if (bytes > 1 << 20)
    throw std::runtime_error(std::to_string(shape.width) +
                             " values per token are more than a GPU's shared memory holds");
  return {
      dim3(blocks, static_cast<unsigned>(rows.size())),
      dim3(threads, slots),
      {static_cast<int>(sizeof(WarpResults)), static_cast<int>(message_at), static_cast<int>(end),
       static_cast<int>((shape.width + kOctet * threads - 1) / (kOctet * threads))},
      static_cast<int>(bytes)};
}

// The slot of a block, and which token of its row it has.
__device__ inline Slot slot_of_block(unsigned char* memory, const SlotLayout& layout) {
  return {memory + threadIdx.y * static_cast<unsigned>(layout.bytes), layout,
          static_cast<int>(threadIdx.x), static_cast<int>(blockDim.x)};
}
__device__ inline std::int64_t token_of_slot() {
  return static_cast<std::int64_t>(blockIdx.x) * blockDim.y + threadIdx.y;
}

// More than the 48 KiB that every GPU gives by default.
template <class Kernel>
void ask_for_shared_memory(Kernel* kernel, const Cut& cut) {
  if (cut.shared_bytes <= 48 * 1024) return;
  check_cuda(cudaFuncSetAttribute(reinterpret_cast<const void*>(kernel),
                                  cudaFuncAttributeMaxDynamicSharedMemorySize, cut.shared_bytes),
             "cudaFuncSetAttribute of shared memory for a wide token");
}

// Calls launch(table, its rows, number of the first one) for kRowsPerLaunch rows at a time.
template <class Launch>
void for_each_table(const RowShape& shape, std::span<const GpuRow> rows, const Launch& launch) {
  for (std::size_t first = 0; first < rows.size(); first += kRowsPerLaunch) {
    const auto some =
        rows.subspan(first, std::min<std::size_t>(kRowsPerLaunch, rows.size() - first));
    RowTable table{};
    std::int64_t tokens = 0;
    for (std::size_t r = 0; r < some.size(); ++r) {
      table.rows[r] = some[r];
      table.first_token[r] = tokens;
      table.blocks[r] = blocks_of(some[r], slots_of(shape.width));
      tokens += some[r].tokens;
    }
    launch(table, some, first);
  }
}

}  // namespace strait::kernels
