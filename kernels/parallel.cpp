#include "kernels/parallel.h"

#include <ATen/ATen.h>
#include <ATen/TensorIterator.h>

#include <algorithm>

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

}  // namespace strait::kernels
