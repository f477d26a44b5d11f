#include "kernels/weight_gradient_queue.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <c10/util/Exception.h>
#include <torch/csrc/autograd/function_hook.h>
#include <torch/csrc/autograd/functions/accumulate_grad.h>
#include <torch/csrc/autograd/variable.h>
#include <torch/headeronly/version.h>

#include <algorithm>

namespace strait::kernels {

namespace {

// Thread-local, because autograd passes only tensors to backward functions.
thread_local WeightGradientQueue* queue_of_thread = nullptr;

void add_and_announce(const GradientAddition& addition) {
  addition.add();
  for (const at::Tensor& leaf : addition.leaves) announce_leaf_gradient(leaf);
}

}  // namespace

at::Tensor parameter_of(const at::Tensor& leaf) {
  const auto accumulator = torch::autograd::impl::try_get_grad_accumulator(leaf);
  const auto* const own = dynamic_cast<const torch::autograd::AccumulateGrad*>(accumulator.get());
  return own == nullptr ? leaf : own->variable;
}

at::Tensor& leaf_gradient(const at::Tensor& leaf) {
  at::Tensor& gradient = parameter_of(leaf).mutable_grad();
  if (!gradient.defined()) gradient = at::zeros_like(leaf).detach();
  return gradient;
}

void announce_leaf_gradient(const at::Tensor& leaf) {
  const at::Tensor parameter = parameter_of(leaf);
  const auto& hook = torch::autograd::impl::post_acc_grad_hooks(parameter);
  if (hook != nullptr) (*hook)(parameter);
}

void add_product(const at::Tensor& sum, const at::Tensor& left, const at::Tensor& right,
                 double scale) {
  if (left.scalar_type() == sum.scalar_type()) {
    sum.addmm_(left, right, /*beta=*/1, /*alpha=*/scale);
    return;
  }
// Earlier versions add only to a tensor of the factors' type.
#if TORCH_VERSION_MAJOR > 2 || (TORCH_VERSION_MAJOR == 2 && TORCH_VERSION_MINOR >= 11)
  // The product is added as it leaves the multiprocessors, without rounding before.
  if (sum.is_cuda() && sum.scalar_type() == at::kFloat) {
    at::Tensor into = sum;
    at::addmm_out(into, sum, left, right, at::kFloat, /*beta=*/1, /*alpha=*/scale);
    return;
  }
#endif
  // Values of a temporary: it should fit a CPU's cache, and keep a GPU busy (32 MiB).
  const std::int64_t piece = std::int64_t{1} << (sum.is_cuda() ? 24 : 20);
  const std::int64_t step =
      std::max<std::int64_t>(1, piece / std::max<std::int64_t>(1, sum.size(1)));
  for (std::int64_t begin = 0; begin < sum.size(0); begin += step) {
    const std::int64_t rows = std::min(step, sum.size(0) - begin);
    sum.narrow(0, begin, rows).add_(at::mm(left.narrow(0, begin, rows), right), scale);
  }
}

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
