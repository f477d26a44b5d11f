#include "models/key_value_cache.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

namespace strait::models {

std::pair<at::Tensor, at::Tensor> SequenceCache::append(int layer, const at::Tensor& keys,
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

at::Tensor KeyValueCache::by_sequence(const std::vector<at::Tensor>& values,
                                      const SequenceFunction& compute) const {
  std::vector<at::Tensor> flat;
  flat.reserve(values.size());
  for (const at::Tensor& one : values) flat.push_back(one.flatten(0, 1).unsqueeze(0));
  std::vector<at::Tensor> results;
  results.reserve(extensions_.size());
  std::vector<at::Tensor> own(values.size());
  std::int64_t begin = 0;
  for (const Extension& extension : extensions_) {
    for (std::size_t i = 0; i < flat.size(); ++i) {
      // In memory of its own: libraries also choose their code by strides and alignment.
      own[i] = flat[i].narrow(1, begin, extension.count).clone(at::MemoryFormat::Contiguous);
    }
    results.push_back(compute(*extension.sequence, own));
    begin += extension.count;
  }
  const at::Tensor all = results.size() == 1 ? results.front() : at::cat(results, 1);
  return all.squeeze(0).unflatten(0, {values.front().size(0), values.front().size(1)});
}

}  // namespace strait::models
