#include "kernels/rms_norm.h"

#include <ATen/ATen.h>
#include <c10/core/DeviceGuard.h>
#include <torch/csrc/autograd/custom_function.h>

#include "kernels/gpu_layers.h"
#include "kernels/kernel_tensors.h"
#include "kernels/weight_gradient_queue.h"

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

// One kernel in each direction, on a GPU.
bool norm_kernel_takes(const at::Tensor& input, const at::Tensor& weight) {
  return layer_kernels_take(input) && weight.scalar_type() == input.scalar_type() &&
         weight.device() == input.device() && weight.is_contiguous() &&
         input.size(-1) <= kMostNormWidth && input.numel() > 0;
}

NormShape norm_shape_of(const at::Tensor& input, const RmsNormRules& rules) {
  const std::int64_t width = input.size(-1);
  return {element_of(input.scalar_type()), input.numel() / width, width,
          static_cast<float>(rules.epsilon), rules.one_plus_weight};
}

void add_weight_gradient(const at::Tensor& weight, const at::Tensor& sums) {
  leaf_gradient(weight).add_(sums);
  announce_leaf_gradient(weight);
}

struct FusedRmsNorm : public torch::autograd::Function<FusedRmsNorm> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& values,
                            const at::Tensor& weight, double epsilon, bool one_plus_weight) {
    const c10::OptionalDeviceGuard on_it(values.device());
    const at::Tensor input = values.contiguous();
    const NormShape shape = norm_shape_of(input, {epsilon, one_plus_weight});
    const at::Tensor scales = at::empty({shape.rows}, input.options().dtype(at::kFloat));
    at::Tensor output = at::empty_like(input);
    cuda::rms_norm(stream_of(input), shape, input.const_data_ptr(), weight.const_data_ptr(),
                   scales.mutable_data_ptr<float>(), output.mutable_data_ptr());
    context->save_for_backward({input, weight, scales});
    context->saved_data["epsilon"] = epsilon;
    context->saved_data["one_plus_weight"] = one_plus_weight;
    return output;
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    const variable_list saved = context->get_saved_variables();
    const at::Tensor& input = saved[0];
    const at::Tensor& weight = saved[1];
    const c10::OptionalDeviceGuard on_it(input.device());
    const NormShape shape = norm_shape_of(input, {context->saved_data["epsilon"].toDouble(),
                                                  context->saved_data["one_plus_weight"].toBool()});
    const at::Tensor slope = gradients[0].contiguous();
    at::Tensor sums;
    if (weight.requires_grad()) {
      sums = at::empty({cuda::norm_sum_rows(shape), shape.width}, saved[2].options());
    }
    at::Tensor into = at::empty_like(input);
    cuda::rms_norm_gradient(stream_of(input), shape, input.const_data_ptr(),
                            weight.const_data_ptr(), saved[2].const_data_ptr<float>(),
                            slope.const_data_ptr(), into.mutable_data_ptr(),
                            sums.defined() ? sums.mutable_data_ptr<float>() : nullptr);
    if (sums.defined()) add_weight_gradient(weight, sums.sum(0));
    return {into, at::Tensor(), at::Tensor(), at::Tensor()};
  }
};

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
      add_weight_gradient(weight, at::mul(slope, normal).flatten(0, -2).sum(0));
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
  if (norm_kernel_takes(input, weight)) {
    return FusedRmsNorm::apply(input, weight, rules.epsilon, rules.one_plus_weight);
  }
  return RmsNorm::apply(input, weight, rules.epsilon, rules.one_plus_weight);
}

}  // namespace strait::kernels
