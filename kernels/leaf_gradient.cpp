#include "kernels/leaf_gradient.h"

#include <ATen/ATen.h>
#include <torch/csrc/autograd/function_hook.h>
#include <torch/csrc/autograd/variable.h>
#include <torch/headeronly/version.h>

#include <algorithm>

namespace strait::kernels {

at::Tensor& leaf_gradient(const at::Tensor& leaf) {
  at::Tensor& gradient = leaf.mutable_grad();
  if (!gradient.defined()) gradient = at::zeros_like(leaf).detach();
  return gradient;
}

void announce_leaf_gradient(const at::Tensor& leaf) {
  const auto& hook = torch::autograd::impl::post_acc_grad_hooks(leaf);
  if (hook != nullptr) (*hook)(leaf);
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

}  // namespace strait::kernels
