#include <stdexcept>

#include "kernels/processors.h"

namespace strait::kernels::cuda {
namespace {

[[noreturn]] void refuse_cuda() {
  throw std::runtime_error(
      "a GPU is to quantise, but this build has no CUDA: set it up where nvcc and a "
      "libtorch with CUDA are installed (./strait setup finds both), or quantise on the CPU");
}

}  // namespace

// Weak, so that a test program can link kernels in their place.
[[gnu::weak]] std::string_view device_type() { return {}; }
[[gnu::weak]] bool has_image() { return false; }
[[gnu::weak]] void encode_rows(void*, const RowShape&, std::span<const GpuRow>, const RowSums&) {
  refuse_cuda();
}
[[gnu::weak]] void decode_rows(void*, const RowShape&, std::span<const GpuRow>) { refuse_cuda(); }
[[gnu::weak]] void dequantize_nf4(void*, const std::uint8_t*, const float*, std::int64_t, void*,
                                  Element) {
  refuse_cuda();
}

}  // namespace strait::kernels::cuda
