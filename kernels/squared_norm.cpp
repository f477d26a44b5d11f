#include "kernels/squared_norm.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include <array>
#include <cstdint>
#include <numeric>

namespace strait::kernels {
namespace {

constexpr std::size_t kLanes = 8;

// Eight parallel sums: the compiler may use vector registers without changing the order.
double squared_norm_of(const float* values, std::size_t count) {
  std::array<double, kLanes> sums{};
  std::size_t i = 0;
  for (; i + kLanes <= count; i += kLanes) {
    for (std::size_t lane = 0; lane < kLanes; ++lane) {
      const double value = values[i + lane];
      sums[lane] += value * value;
    }
  }
  for (std::size_t lane = 0; i < count; ++i, ++lane) {
    const double value = values[i];
    sums[lane] += value * value;
  }
  return std::accumulate(sums.begin(), sums.end(), 0.0);
}

}  // namespace

double squared_norm(const at::Tensor& tensor) {
  const at::NoGradGuard no_grad;
  TORCH_INTERNAL_ASSERT(at::isFloatingType(tensor.scalar_type()) && tensor.dtype() != at::kDouble,
                        "squared_norm of ", tensor.dtype());
  TORCH_INTERNAL_ASSERT(tensor.is_cpu(), "squared_norm of a tensor on ", tensor.device());
  const at::Tensor values = tensor.to(at::kFloat).contiguous();
  return squared_norm_of(values.const_data_ptr<float>(), static_cast<std::size_t>(values.numel()));
}

at::Tensor squared_norms(at::TensorList tensors) {
  const at::NoGradGuard no_grad;
  if (!tensors.empty() && !tensors[0].is_cpu()) {
    return at::stack(at::_foreach_norm(tensors, 2, at::kDouble)).square_();
  }
  at::Tensor norms = at::empty({static_cast<std::int64_t>(tensors.size())}, at::kDouble);
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    norms.mutable_data_ptr<double>()[i] = squared_norm(tensors[i]);
  }
  return norms;
}

}  // namespace strait::kernels
