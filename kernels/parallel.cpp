#include "kernels/parallel.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <ATen/TensorIterator.h>

#include <algorithm>
#include <atomic>
#include <numeric>

namespace strait::kernels {

void parallel_for(std::int64_t count, std::int64_t grain,
                  const std::function<void(std::int64_t first, std::int64_t last)>& work) {
  const std::int64_t parts = (count + grain - 1) / grain;
  if (parts <= 1) {
    if (count > 0) work(0, count);
    return;
  }
  // Loops of iterators are compiled in libtorch, with its OpenMP. This one is over bytes that
  // are not read: their addresses number the parts.
  const at::Tensor places = at::empty({parts}, at::kByte);
  at::TensorIterator iterator = at::TensorIterator::borrowing_nullary_op(places);
  const auto* const begin = places.const_data_ptr<std::uint8_t>();
  const auto loop = [&](char** data, const std::int64_t* /*strides*/, std::int64_t size,
                        std::int64_t /*one*/) {
    const std::int64_t part = reinterpret_cast<const std::uint8_t*>(data[0]) - begin;
    work(part * grain, std::min((part + size) * grain, count));
  };
  iterator.for_each(loop, /*grain_size=*/1);
}

void share_tasks(const std::vector<std::int64_t>& costs,
                 const std::function<void(std::size_t task)>& work) {
  std::vector<std::size_t> order(costs.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::ranges::stable_sort(
      order, [&](std::size_t one, std::size_t other) { return costs[one] > costs[other]; });
  const std::int64_t threads = at::get_num_threads();
  const std::int64_t sum = std::accumulate(costs.begin(), costs.end(), std::int64_t{0});
  constexpr std::int64_t kTasksOfThread = 4;
  if (costs.empty() || costs[order.front()] * threads * kTasksOfThread > sum) {
    for (const std::size_t task : order) work(task);
    return;
  }
  std::atomic<std::size_t> next = 0;
  parallel_for(threads, 1, [&](std::int64_t /*first*/, std::int64_t /*last*/) {
    for (std::size_t i = next++; i < order.size(); i = next++) work(order[i]);
  });
}

}  // namespace strait::kernels
