#include <algorithm>
#include <stdexcept>

#include "kernels/nf4.h"
#include "kernels/octets.cuh"
#include "kernels/processors.h"
#include "kernels/row_launch.cuh"

namespace strait::kernels::cuda {
namespace {

constexpr unsigned kThreads = 256;

struct LevelTable {
  float values[kNf4Levels.size()];
};

// Each thread computes eight values from four bytes of levels.
__global__ void __launch_bounds__(kThreads)
    dequantize_octets(const std::uint8_t* levels, const float* sizes, std::int64_t count,
                      std::uint8_t* values, Element element,
                      const __grid_constant__ LevelTable table) {
  STRAIT_SHARED_MEMORY(memory);
  // Shared memory lets lanes read sixteen numbers at a time; a kernel's arguments do not.
  auto* const numbers = reinterpret_cast<float*>(memory);
  if (threadIdx.x < kNf4Levels.size()) numbers[threadIdx.x] = table.values[threadIdx.x];
  __syncthreads();
  const std::int64_t octet = static_cast<std::int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  const std::int64_t left = count - octet * kOctet;
  if (left <= 0) return;
  const std::uint32_t pairs = reinterpret_cast<const std::uint32_t*>(levels)[octet];
  const float size = sizes[octet / (kNf4Block / kOctet)];
  Octet read;
  for (int i = 0; i < kOctet; ++i) {
    // the first value of a byte is in its upper half
    const int shift = 8 * (i / 2) + 4 * (1 - i % 2);
    read.value[i] = numbers[(pairs >> shift) & 15U] * size;
  }
  store_elements(read, false, element, static_cast<int>(left < kOctet ? left : kOctet),
                 values + octet * kOctet * bytes_of(element));
}

}  // namespace

void dequantize_nf4(void* stream, const std::uint8_t* levels, const float* sizes,
                    std::int64_t count, void* values, Element element) {
  if (count == 0) return;
  LevelTable table;
  std::copy(kNf4Levels.begin(), kNf4Levels.end(), table.values);
  const std::int64_t blocks = (count + kOctet * kThreads - 1) / (kOctet * kThreads);
  if (blocks > 0x7FFFFFFF) throw std::runtime_error("a matrix is too large for a GPU's grid");
  STRAIT_LAUNCH(dequantize_octets, dim3(static_cast<unsigned>(blocks)), dim3(kThreads),
                static_cast<int>(sizeof(LevelTable)), static_cast<cudaStream_t>(stream))
  (levels, sizes, count, static_cast<std::uint8_t*>(values), element, table);
  check_cuda(cudaGetLastError(), "dequantize_nf4");
}

}  // namespace strait::kernels::cuda
