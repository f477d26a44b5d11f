#include "kernels/weight_gradient_queue.h"

#include <ATen/core/grad_mode.h>
#include <c10/util/Exception.h>

#include <algorithm>
#include <utility>

#include "kernels/leaf_gradient.h"

namespace strait::kernels {
namespace {

// Thread-local, because autograd passes only tensors to backward functions.
thread_local WeightGradientQueue* queue_of_thread = nullptr;

void add_and_announce(const GradientAddition& addition) {
  addition.add();
  for (const at::Tensor& leaf : addition.leaves) announce_leaf_gradient(leaf);
}

}  // namespace

bool WeightGradientQueue::contains(const at::Tensor& leaf) const {
  return std::ranges::any_of(queued_, [&](const GradientAddition& addition) {
    return std::ranges::any_of(addition.leaves,
                               [&](const at::Tensor& one) { return one.is_same(leaf); });
  });
}

void WeightGradientQueue::play() {
  const at::NoGradGuard no_grad;
  std::vector<GradientAddition> all = std::exchange(queued_, {});
  for (GradientAddition& queued : all) {
    const GradientAddition addition = std::move(queued);  // freed after its product
    add_and_announce(addition);
  }
}

QueueWeightGradients::QueueWeightGradients(WeightGradientQueue& queue) {
  TORCH_INTERNAL_ASSERT(queue_of_thread == nullptr, "weight gradients are queued twice");
  queue_of_thread = &queue;
}

QueueWeightGradients::~QueueWeightGradients() { queue_of_thread = nullptr; }

void add_now_or_later(GradientAddition addition) {
  if (queue_of_thread == nullptr) {
    add_and_announce(addition);
  } else {
    queue_of_thread->push(std::move(addition));
  }
}

bool is_left_for_later(const at::Tensor& leaf) {
  return queue_of_thread != nullptr && queue_of_thread->contains(leaf);
}

}  // namespace strait::kernels
