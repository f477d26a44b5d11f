#include "models/key_value_cache.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include <algorithm>

namespace strait::models {

std::pair<at::Tensor, at::Tensor> KeyValueCache::append(int layer, const at::Tensor& keys,
                                                        const at::Tensor& values) {
  const at::NoGradGuard no_grad;
  Entry& entry = entries_[layer];
  if (!entry.keys.defined()) {
    const auto room = [&](const at::Tensor& like) {
      return at::empty({like.size(0), capacity_, like.size(2), like.size(3)}, like.options());
    };
    entry.keys = room(keys);
    entry.values = room(values);
  }
  const std::int64_t count = keys.size(1);
  TORCH_INTERNAL_ASSERT(entry.length + count <= capacity_, "a cache of ", capacity_,
                        " tokens was given ", entry.length + count);
  entry.keys.narrow(1, entry.length, count).copy_(keys);
  entry.values.narrow(1, entry.length, count).copy_(values);
  entry.length += count;
  return {entry.keys.narrow(1, 0, entry.length), entry.values.narrow(1, 0, entry.length)};
}

std::int64_t KeyValueCache::length() const {
  std::int64_t shortest = entries_.empty() ? 0 : capacity_;
  for (const auto& [layer, entry] : entries_) shortest = std::min(shortest, entry.length);
  return shortest;
}

}  // namespace strait::models
