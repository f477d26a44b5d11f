#include <stdexcept>

#include "kernels/processors.h"

namespace strait::kernels::cuda {
namespace {

[[noreturn]] void refuse_cuda() {
  throw std::runtime_error(
      "a tensor on a GPU is to be quantised, but this build has no CUDA: configure it with "
      "-DSTRAIT_CUDA=ON where nvcc is installed, or keep the tensors on the CPU");
}

}  // namespace

void quantize(void*, const Values&, const GroupFormat&, const Draw&, std::byte*, SquareSums*) {
  refuse_cuda();
}
void dequantize(void*, const std::byte*, const GroupFormat&, const MutableValues&) {
  refuse_cuda();
}
void quantize_change(void*, const Values&, const GroupFormat&, const Draw&, CacheFormat, bool,
                     std::byte*, std::byte*, SquareSums*) {
  refuse_cuda();
}
void apply_change(void*, const std::byte*, const GroupFormat&, CacheFormat, bool, std::byte*,
                  const MutableValues&) {
  refuse_cuda();
}
void store_entry(void*, const Values&, CacheFormat, std::byte*) { refuse_cuda(); }
void load_entry(void*, CacheFormat, const std::byte*, const MutableValues&) { refuse_cuda(); }

}  // namespace strait::kernels::cuda
