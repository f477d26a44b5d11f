#include "kernels/averaged_adamw.h"

#include <ATen/ATen.h>

#include <cmath>

#include "kernels/averaged_factors.h"
#include "kernels/parallel.h"

namespace strait::kernels {
namespace {

constexpr std::int64_t kGrain = 1 << 15;  // elements from which another thread pays off

float* values_of(const at::Tensor& tensor, std::int64_t count) {
  TORCH_INTERNAL_ASSERT(tensor.is_cpu() && tensor.scalar_type() == at::kFloat &&
                            tensor.is_contiguous() && tensor.numel() == count,
                        "averaged_adamw of ", tensor.toString(), " ", tensor.sizes());
  return tensor.data_ptr<float>();
}

void update_by_operators(const at::Tensor& weights, const at::Tensor& gradient,
                         const at::Tensor& first, const at::Tensor& second,
                         const AveragedFactors& by) {
  first.mul_(by.beta1).add_(gradient, 1 - by.beta1);
  second.mul_(by.beta2).addcmul_(gradient, gradient, 1 - by.beta2);
  const at::Tensor mean = first.mul(by.first);
  const at::Tensor square = second.mul(by.second);
  const at::Tensor spread = square.sub(mean.square()).clamp_min_(0);
  const at::Tensor least = square.mul(1 - by.most);
  const at::Tensor clean = square.sub(spread, by.noise);
  // A comparison with NaN is false: if squares are infinite the step is zero, as in AdamW.
  const at::Tensor size = at::where(clean.gt(least), clean, least).sqrt_().add_(by.epsilon);
  weights.mul_(by.keep).addcdiv_(mean, size, -by.step);
}

}  // namespace

AveragedFactors::AveragedFactors(const AveragedAdamW& how)
    : beta1(static_cast<float>(how.beta1)),
      beta2(static_cast<float>(how.beta2)),
      keep(static_cast<float>(1 - how.learning_rate * how.weight_decay)),
      step(static_cast<float>(how.learning_rate)),
      epsilon(static_cast<float>(how.epsilon)) {
  TORCH_INTERNAL_ASSERT(how.updates > 0 && how.copies > 0);
  const auto updates = static_cast<double>(how.updates);
  const double power = std::pow(how.beta1, updates);
  first = static_cast<float>(1 / (1 - power));
  second = static_cast<float>(1 / (1 - std::pow(how.beta2, updates)));
  const double others = 1 - 1 / static_cast<double>(how.copies);
  // The squared weights of a moment's terms. In the first gradient nothing has averaged out.
  // Nothing ever does if the moment is the gradient itself. Then noise cannot be estimated.
  const double left = (1 - how.beta1) / (1 + how.beta1) * (1 + power) / (1 - power);
  noise = how.updates > 1 && left < 1 ? static_cast<float>(others / (1 - left)) : 0.0F;
  most = static_cast<float>(others);
}

void averaged_adamw(const at::Tensor& weights, const at::Tensor& gradient,
                    const at::Tensor& first_moment, const at::Tensor& second_moment,
                    const AveragedAdamW& how) {
  const AveragedFactors by(how);
  if (!weights.is_cpu())
    return update_by_operators(weights, gradient, first_moment, second_moment, by);
  const std::int64_t count = weights.numel();
  float* const to = values_of(weights, count);
  const float* const from = values_of(gradient, count);
  float* const first = values_of(first_moment, count);
  float* const second = values_of(second_moment, count);
  parallel_for(count, kGrain, [&](std::int64_t begin, std::int64_t end) {
    cpu::averaged_adamw(to + begin, from + begin, first + begin, second + begin, end - begin, by);
  });
}

}  // namespace strait::kernels
