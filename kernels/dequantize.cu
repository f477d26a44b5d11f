#include "kernels/cuda_launch.cuh"
#include "kernels/processors.h"

namespace strait::kernels::cuda {
namespace {

__global__ void dequantize_tokens(const std::uint8_t* in, GroupFormat format, MutableValues out) {
  for (std::int64_t token = blockIdx.x; token < out.tokens; token += gridDim.x) {
    auto* const bytes = const_cast<std::uint8_t*>(in) + token * token_bytes(format, out.width);
    const Token message{bytes, format, out.width};
    for (std::int64_t c = first_chunk(); c < chunks_of(out.width); c += kThreads / 32) {
      Chunk values;
      const unsigned refused = read_chunk(message, c, values);
      for (int p = 0; p < kParts; ++p) {
        const std::int64_t i = index_of(c, p);
        if (i >= out.width) continue;
        store_element(out.data, out.element, token * out.width + i, values.part[p],
                      (refused >> p & 1U) != 0);
      }
    }
  }
}

}  // namespace

void dequantize(void* stream, const std::byte* in, const GroupFormat& format,
                const MutableValues& out) {
  dequantize_tokens<<<blocks_for(out.tokens), kThreads, 0, static_cast<cudaStream_t>(stream)>>>(
      reinterpret_cast<const std::uint8_t*>(in), format, out);
  check_cuda(cudaGetLastError(), "read a quantised row");
}

}  // namespace strait::kernels::cuda
