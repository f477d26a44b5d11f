#include "kernels/cuda_encode.cuh"
#include "kernels/processors.h"

namespace strait::kernels::cuda {
namespace {

struct Zeros {
  __device__ float value(std::int64_t /*i*/) const { return 0.0F; }
};

__global__ void quantize_tokens(Values values, GroupFormat format, Draw draw, std::uint8_t* out,
                                SquareSums* sums) {
  extern __shared__ std::uint16_t scale_codes[];
  ThreadSums mine;
  for (std::int64_t token = blockIdx.x; token < values.tokens; token += gridDim.x) {
    const Difference<Zeros> from{values, token, {}};
    const Token message{out + token * token_bytes(format, values.width), format, values.width};
    write_message(from, message, draw, scale_codes, mine);
    if (sums == nullptr) continue;
    const ErrorSink<Zeros> sink{from, &mine};
    for (std::int64_t c = first_chunk(); c < chunks_of(values.width); c += kThreads / 32) {
      Chunk known;
      read_chunk(message, c, known);
      for (int p = 0; p < kParts; ++p) {
        const std::int64_t i = index_of(c, p);
        if (i < values.width) sink.take(i, known.part[p], false);
      }
    }
    mine.add_to(sums, message);
  }
}

}  // namespace

void quantize(void* stream, const Values& values, const GroupFormat& format, const Draw& draw,
              std::byte* out, SquareSums* sums) {
  auto* const queue = static_cast<cudaStream_t>(stream);
  DeviceSums collected(sums, queue);
  quantize_tokens<<<blocks_for(values.tokens), kThreads, scale_code_bytes(format, values.width),
                    queue>>>(values, format, draw, reinterpret_cast<std::uint8_t*>(out),
                             collected.device());
  check_cuda(cudaGetLastError(), "quantise a row");
  collected.collect();
}

}  // namespace strait::kernels::cuda
