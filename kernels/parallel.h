#pragma once

#include <cstdint>
#include <functional>

namespace strait::kernels {

// Calls `work(first, last)` for parts of 0 … count on the threads of libtorch, each of `grain` or a
// multiple of it, but for the last. One part, or a call from such a part, stays in its thread.
// at::parallel_for is a template, which has one thread only in programs compiled without OpenMP.
void parallel_for(std::int64_t count, std::int64_t grain,
                  const std::function<void(std::int64_t first, std::int64_t last)>& work);

}  // namespace strait::kernels
