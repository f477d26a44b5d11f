#include "kernels/cuda_entries.cuh"
#include "kernels/cuda_launch.cuh"
#include "kernels/processors.h"

namespace strait::kernels::cuda {
namespace {

struct ValueSink {
  MutableValues out;
  std::int64_t token;

  __device__ void take(std::int64_t i, float known, bool refused) const {
    store_element(out.data, out.element, token * out.width + i, known, refused);
  }
};

__global__ void apply_tokens(const std::uint8_t* in, GroupFormat format, CacheFormat kind,
                             bool fresh, std::uint8_t* entries, MutableValues out) {
  extern __shared__ std::uint16_t scale_codes[];
  for (std::int64_t token = blockIdx.x; token < out.tokens; token += gridDim.x) {
    const std::int64_t width = out.width;
    const Entry entry(kind, fresh, entries + token * entry_bytes(kind, 1, width), width);
    auto* const bytes = const_cast<std::uint8_t*>(in) + token * token_bytes(format, width);
    const Advanced<ValueSink> advanced{entry, {bytes, format, width}, {out, token}};
    advanced.advance(scale_codes);
    __syncthreads();
  }
}

// What store_entry() is given, without what no entry may hold.
struct FiniteValues {
  Values row;
  std::int64_t token;

  __device__ float value(std::int64_t i) const {
    const float given = load_element(row.data, row.element, token * row.width + i);
    return (bits_of_float(given) & kSizeBits) < kHugeBits ? given : 0.0F;
  }
  __device__ void read(std::int64_t chunk, Chunk& values) const {
    for (int p = 0; p < kParts; ++p) {
      const std::int64_t i = index_of(chunk, p);
      values.part[p] = i < row.width ? value(i) : 0.0F;
    }
  }
  __device__ void known(std::int64_t /*chunk*/, const Chunk& /*values*/) const {}
};

__global__ void store_tokens(Values values, CacheFormat kind, std::uint8_t* entries) {
  extern __shared__ std::uint16_t scale_codes[];
  for (std::int64_t token = blockIdx.x; token < values.tokens; token += gridDim.x) {
    const std::int64_t width = values.width;
    const Entry entry(kind, true, entries + token * entry_bytes(kind, 1, width), width);
    const FiniteValues source{values, token};
    if (kind == CacheFormat::eight_bits) {
      store_eight_bits(entry, source, scale_codes);
    } else {
      for (std::int64_t i = threadIdx.x; i < width; i += kThreads) {
        entry.halves()[i] = bfloat16_bits(source.value(i));
      }
    }
    __syncthreads();
  }
}

__global__ void load_tokens(CacheFormat kind, const std::uint8_t* entries, MutableValues out) {
  for (std::int64_t token = blockIdx.x; token < out.tokens; token += gridDim.x) {
    const std::int64_t width = out.width;
    auto* const bytes = const_cast<std::uint8_t*>(entries) + token * entry_bytes(kind, 1, width);
    const Entry entry(kind, false, bytes, width);
    for (std::int64_t i = threadIdx.x; i < width; i += kThreads) {
      const bool refused =
          kind == CacheFormat::eight_bits && bytes[1 + i / kEntryFormat.group] == kRefusedGroup;
      store_element(out.data, out.element, token * width + i, entry.value(i), refused);
    }
  }
}

}  // namespace

void apply_change(void* stream, const std::byte* in, const GroupFormat& format, CacheFormat kind,
                  bool fresh, std::byte* entry, const MutableValues& out) {
  apply_tokens<<<blocks_for(out.tokens), kThreads, scale_code_bytes(format, out.width),
                 static_cast<cudaStream_t>(stream)>>>(reinterpret_cast<const std::uint8_t*>(in),
                                                      format, kind, fresh,
                                                      reinterpret_cast<std::uint8_t*>(entry), out);
  check_cuda(cudaGetLastError(), "apply a change");
}

void store_entry(void* stream, const Values& values, CacheFormat kind, std::byte* entry) {
  store_tokens<<<blocks_for(values.tokens), kThreads, scale_code_bytes(kEntryFormat, values.width),
                 static_cast<cudaStream_t>(stream)>>>(values, kind,
                                                      reinterpret_cast<std::uint8_t*>(entry));
  check_cuda(cudaGetLastError(), "store an entry");
}

void load_entry(void* stream, CacheFormat kind, const std::byte* entry, const MutableValues& out) {
  load_tokens<<<blocks_for(out.tokens), kThreads, 0, static_cast<cudaStream_t>(stream)>>>(
      kind, reinterpret_cast<const std::uint8_t*>(entry), out);
  check_cuda(cudaGetLastError(), "load an entry");
}

}  // namespace strait::kernels::cuda
