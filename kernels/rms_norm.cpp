#include "kernels/rms_norm.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <torch/csrc/autograd/custom_function.h>

#include "kernels/leaf_gradient.h"

namespace strait::kernels {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

at::Tensor wide(const at::Tensor& values) {
  return values.scalar_type() == at::kDouble ? values : values.to(at::kFloat);
}

at::Tensor factor_of(const at::Tensor& weight, bool one_plus_weight) {
  return one_plus_weight ? wide(weight).add(1) : wide(weight);
}

struct RmsNorm : public torch::autograd::Function<RmsNorm> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& input,
                            const at::Tensor& weight, double epsilon, bool one_plus_weight) {
    const at::Tensor values = wide(input);
    const at::Tensor scale =
        at::mul(values, values).mean(-1, /*keepdim=*/true).add_(epsilon).rsqrt_();
    context->save_for_backward({input, weight, scale});
    context->saved_data["one_plus_weight"] = one_plus_weight;
    at::Tensor normal = at::mul(values, scale);
    if (one_plus_weight) return normal.mul_(factor_of(weight, true)).to(input.scalar_type());
    return normal.to(input.scalar_type()).mul_(weight);
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    const variable_list saved = context->get_saved_variables();
    const at::Tensor& input = saved[0];
    const at::Tensor& weight = saved[1];
    const at::Tensor& scale = saved[2];
    const bool one_plus_weight = context->saved_data["one_plus_weight"].toBool();
    const at::Tensor slope = wide(gradients[0]);
    const at::Tensor normal = at::mul(wide(input), scale);
    if (weight.requires_grad()) {
      leaf_gradient(weight).add_(at::mul(slope, normal).flatten(0, -2).sum(0));
      announce_leaf_gradient(weight);
    }
    at::Tensor into = slope.mul(factor_of(weight, one_plus_weight));
    const at::Tensor along = at::mul(into, normal).mean(-1, /*keepdim=*/true);
    into.sub_(normal.mul(along)).mul_(scale);
    return {into.to(input.scalar_type()), at::Tensor(), at::Tensor(), at::Tensor()};
  }
};

}  // namespace

at::Tensor rms_norm(const at::Tensor& input, const at::Tensor& weight, const RmsNormRules& rules) {
  TORCH_INTERNAL_ASSERT(weight.is_leaf() && weight.dim() == 1 && input.size(-1) == weight.size(0),
                        "a norm of ", input.sizes(), " with weight ", weight.sizes());
  return RmsNorm::apply(input, weight, rules.epsilon, rules.one_plus_weight);
}

}  // namespace strait::kernels
