#include <cstdint>
#include <cstdlib>

#include "tests/gpu/emulation/emulated_gpu.h"

// The GPU's memory as memory of the process: AddressSanitizer sees to its ends.
namespace emulated {

void* allocate(std::size_t size, MemoryKind /*kind*/) {
  constexpr std::size_t kAlignment = 256;  // as cudaMalloc
  void* data = nullptr;
  return posix_memalign(&data, kAlignment, size) == 0 ? data : nullptr;
}
void release(void* data) { std::free(data); }
void mark_written(const void* /*data*/, std::size_t /*size*/) {}
void note_atomic(const void* /*data*/, std::size_t /*size*/) {}

}  // namespace emulated
