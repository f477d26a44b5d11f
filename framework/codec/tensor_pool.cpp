#include "framework/codec/tensor_pool.h"

#include <ATen/ATen.h>

#include <atomic>

namespace strait::codec {
namespace {

// A view or a saved copy of a tensor shares its storage, but is another tensor.
bool is_sole_owner(const at::Tensor& tensor) {
  return tensor.use_count() == 1 && tensor.storage().use_count() == 1;
}

}  // namespace

at::Tensor TensorPool::make(at::IntArrayRef sizes) const {
  return at::empty(sizes, at::TensorOptions().dtype(type_).pinned_memory(pinned_));
}

at::Tensor TensorPool::take(std::span<const std::int64_t> shape) {
  const at::IntArrayRef sizes(shape.data(), shape.size());
  at::Tensor* best = nullptr;
  std::int64_t needed =
      c10::multiply_integers(sizes) * static_cast<std::int64_t>(c10::elementSize(type_));
  for (at::Tensor& tensor : tensors_) {
    if (!is_sole_owner(tensor)) continue;
    const auto held = static_cast<std::int64_t>(tensor.storage().nbytes());
    if (best == nullptr) {
      best = &tensor;
      continue;
    }
    // The smallest tensor that is large enough; if there is none, the largest one grows.
    const auto best_held = static_cast<std::int64_t>(best->storage().nbytes());
    const bool fits = held >= needed;
    const bool best_fits = best_held >= needed;
    if (fits ? (!best_fits || held < best_held) : (!best_fits && held > best_held)) best = &tensor;
  }
  if (best == nullptr) {
    tensors_.push_back(make(sizes));
    return tensors_.back();
  }
  // Another thread may have dropped the last reference. Its accesses must happen before ours.
  std::atomic_thread_fence(std::memory_order_acquire);
  // The last user may have made it part of a graph.
  best->unsafeGetTensorImpl()->set_autograd_meta(nullptr);
  best->unsafeGetTensorImpl()->set_sizes_contiguous(sizes);
  if (static_cast<std::int64_t>(best->storage().nbytes()) < needed) {
    *best = make(sizes);
  }
  return *best;
}

}  // namespace strait::codec
