#include "kernels/cuda_encode.cuh"
#include "kernels/cuda_entries.cuh"
#include "kernels/processors.h"

namespace strait::kernels::cuda {
namespace {

__global__ void change_tokens(Values values, GroupFormat format, Draw draw, CacheFormat kind,
                              bool fresh, std::uint8_t* entries, std::uint8_t* out,
                              SquareSums* sums) {
  extern __shared__ std::uint16_t scale_codes[];
  ThreadSums mine;
  for (std::int64_t token = blockIdx.x; token < values.tokens; token += gridDim.x) {
    const std::int64_t width = values.width;
    const Entry entry(kind, fresh, entries + token * entry_bytes(kind, 1, width), width);
    const Difference<Entry> from{values, token, entry};
    const Token message{out + token * token_bytes(format, width), format, width};
    write_message(from, message, draw, scale_codes, mine);
    const Advanced<ErrorSink<Entry>> advanced{entry, message, {from, &mine}};
    advanced.advance(scale_codes);
    mine.add_to(sums, message);
    __syncthreads();
  }
}

}  // namespace

void quantize_change(void* stream, const Values& values, const GroupFormat& format,
                     const Draw& draw, CacheFormat kind, bool fresh, std::byte* entry,
                     std::byte* out, SquareSums* sums) {
  auto* const queue = static_cast<cudaStream_t>(stream);
  DeviceSums collected(sums, queue);
  change_tokens<<<blocks_for(values.tokens), kThreads, scale_code_bytes(format, values.width),
                  queue>>>(values, format, draw, kind, fresh,
                           reinterpret_cast<std::uint8_t*>(entry),
                           reinterpret_cast<std::uint8_t*>(out), collected.device());
  check_cuda(cudaGetLastError(), "quantise a change");
  collected.collect();
}

}  // namespace strait::kernels::cuda
