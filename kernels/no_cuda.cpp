#include <stdexcept>

#include "kernels/gpu_layers.h"
#include "kernels/processors.h"

namespace strait::kernels::cuda {
namespace {

[[noreturn]] void refuse_cuda() {
  throw std::runtime_error(
      "a kernel is to run on a GPU, but this build has no CUDA: set it up where nvcc and a "
      "libtorch with CUDA are installed (./strait setup finds both), or compute on the CPU");
}

}  // namespace

// Weak, so that a test program can link other kernels.
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

[[gnu::weak]] void rms_norm(void*, const NormShape&, const void*, const void*, float*, void*) {
  refuse_cuda();
}
[[gnu::weak]] std::int64_t norm_sum_rows(const NormShape&) { refuse_cuda(); }
[[gnu::weak]] void rms_norm_gradient(void*, const NormShape&, const void*, const void*,
                                     const float*, const void*, void*, float*) {
  refuse_cuda();
}
[[gnu::weak]] void gated_product(void*, const GatedShape&, const void*, const void*, void*) {
  refuse_cuda();
}
[[gnu::weak]] void gated_product_gradient(void*, const GatedShape&, const void*, const void*,
                                          const void*, void*, void*) {
  refuse_cuda();
}
[[gnu::weak]] void rotate_heads(void*, const HeadShape&, const void*, const void*, const void*,
                                void*) {
  refuse_cuda();
}
[[gnu::weak]] void cross_entropy(void*, const LogitShape&, const void*, const std::int64_t*, float*,
                                 void*) {
  refuse_cuda();
}

}  // namespace strait::kernels::cuda
