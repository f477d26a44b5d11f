#pragma once

#include <cstdint>
#include <functional>
#include <vector>

namespace strait::kernels {

// Calls `work(first, last)` for parts of 0 … count on the threads of libtorch, each of `grain` or a
// multiple of it, but for the last. One part, or a call from such a part, stays in its thread.
// at::parallel_for is a template, which has one thread only in programs compiled without OpenMP.
void parallel_for(std::int64_t count, std::int64_t grain,
                  const std::function<void(std::int64_t first, std::int64_t last)>& work);

// Calls `work` for every task, of these costs: the dearest first, and each by the next thread of
// libtorch that is free, so that threads end together. Where a few tasks are most of the cost, they
// are done one after the other, so that all threads share each. Which of both depends on the costs
// and the number of threads.
void share_tasks(const std::vector<std::int64_t>& costs,
                 const std::function<void(std::size_t task)>& work);

}  // namespace strait::kernels
