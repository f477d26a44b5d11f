#include "models/key_value_cache.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include <algorithm>

namespace strait::models {

std::vector<at::Tensor> SequenceCache::append(int layer, const std::vector<at::Tensor>& values) {
  const at::NoGradGuard no_grad;
  Entry& entry = entries_[layer];
  const std::int64_t count = values.front().size(1);
  const std::int64_t length = entry.length + count;
  TORCH_INTERNAL_ASSERT(length <= capacity_, "a cache of ", capacity_, " tokens was given ",
                        length);
  std::vector<at::Tensor> all;
  for (std::size_t i = 0; i < values.size(); ++i) {
    if (entry.values.size() == i) {
      std::vector<std::int64_t> sizes = values[i].sizes().vec();
      sizes[1] = capacity_;
      entry.values.push_back(at::empty(sizes, values[i].options()));
    }
    entry.values[i].narrow(1, entry.length, count).copy_(values[i]);
    all.push_back(entry.values[i].narrow(1, 0, length));
  }
  entry.length = length;
  return all;
}

bool KeyValueCache::extends_by_tokens(const at::Tensor& values) const {
  return values.is_cpu() && values.scalar_type() == at::kFloat &&
         std::ranges::all_of(extensions_, [](const Extension& one) { return one.count == 1; });
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
