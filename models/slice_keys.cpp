#include "models/slice_keys.h"

#include <ATen/ATen.h>

#include <utility>

namespace strait::models {

kernels::AttentionHeads SliceKeys::extend(int layer, int slice, bool trains,
                                          kernels::AttentionHeads own) {
  std::vector<KeyAndValue>& slices = layers_[layer];
  const auto index = static_cast<std::size_t>(slice);
  TORCH_INTERNAL_ASSERT(index <= slices.size(), "layer ", layer, " computes slice ", slice,
                        " after ", slices.size(), " slices");
  if (index == slices.size()) {
    slices.push_back({{own.key.detach().requires_grad_(trains), {}},
                      {own.value.detach().requires_grad_(trains), {}}});
  }
  const auto with_past = [&](std::size_t part, at::Tensor& values) {
    Kept& kept = slices[index][part];
    if (values.requires_grad()) kept.made = values;
    if (index == 0) return;
    std::vector<at::Tensor> all;
    for (std::size_t i = 0; i < index; ++i) all.push_back(slices[i][part].leaf);
    all.push_back(values);
    values = at::cat(all, 1);
  };
  with_past(0, own.key);
  with_past(1, own.value);
  return own;
}

void SliceKeys::take_root(Kept& kept, Roots& roots) {
  const Kept taken = std::exchange(kept, {});
  if (!taken.made.defined() || !taken.leaf.grad().defined()) return;
  roots.values.push_back(taken.made);
  roots.gradients.push_back(taken.leaf.grad());
}

SliceKeys::Roots SliceKeys::take_roots(int first, int last, int slice) {
  Roots roots;
  for (auto layer = layers_.lower_bound(first); layer != layers_.upper_bound(last); ++layer) {
    for (Kept& kept : layer->second.at(static_cast<std::size_t>(slice))) take_root(kept, roots);
  }
  return roots;
}

}  // namespace strait::models
