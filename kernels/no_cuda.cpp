#include <stdexcept>

#include "kernels/processors.h"

namespace strait::kernels::cuda {
namespace {

[[noreturn]] void refuse_cuda() {
  throw std::runtime_error(
      "rows on a GPU are to be quantised, but this build has no CUDA: set it up where nvcc and a "
      "libtorch with CUDA are installed (./strait setup finds both), or keep the rows on the CPU");
}

}  // namespace

// Weak, so that a test program can link kernels in their place.
[[gnu::weak]] std::string_view device_type() { return {}; }
[[gnu::weak]] bool has_image() { return false; }
[[gnu::weak]] void encode_rows(void*, const RowShape&, std::span<const GpuRow>, const RowSums&) {
  refuse_cuda();
}
[[gnu::weak]] void decode_rows(void*, const RowShape&, std::span<const GpuRow>) { refuse_cuda(); }

}  // namespace strait::kernels::cuda
