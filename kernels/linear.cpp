#include "kernels/linear.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <torch/csrc/autograd/custom_function.h>

#include <optional>

#include "kernels/leaf_gradient.h"

namespace strait::kernels {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

struct LinearFunction : public torch::autograd::Function<LinearFunction> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& input,
                            const at::Tensor& weight, const std::optional<at::Tensor>& bias,
                            bool input_first) {
    context->save_for_backward({input, weight, bias.value_or(at::Tensor())});
    context->saved_data["input_first"] = input_first;
    const at::Tensor matrix = input_first ? weight : weight.t();
    return bias ? at::addmm(*bias, input, matrix) : at::mm(input, matrix);
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    const variable_list saved = context->get_saved_variables();
    const at::Tensor& input = saved[0];
    const at::Tensor& weight = saved[1];
    const at::Tensor& bias = saved[2];
    const bool input_first = context->saved_data["input_first"].toBool();
    const at::Tensor& slope = gradients[0];
    at::Tensor input_gradient;
    if (context->needs_input_grad(0)) {
      input_gradient = at::mm(slope, input_first ? weight.t() : weight);
    }
    if (weight.requires_grad()) {
      at::Tensor& sum = leaf_gradient(weight);
      if (input_first) {
        add_product(sum, input.t(), slope);
      } else {
        add_product(sum, slope.t(), input);
      }
      announce_leaf_gradient(weight);
    }
    if (bias.defined() && bias.requires_grad()) {
      leaf_gradient(bias).add_(slope.sum(0));
      announce_leaf_gradient(bias);
    }
    return {input_gradient, at::Tensor(), at::Tensor(), at::Tensor()};
  }
};

}  // namespace

at::Tensor linear(const at::Tensor& input, const at::Tensor& weight, const at::Tensor& bias,
                  bool input_first) {
  TORCH_INTERNAL_ASSERT(weight.is_leaf() && (!bias.defined() || bias.is_leaf()),
                        "a linear layer whose weight ", weight.sizes(), " is no leaf");
  const auto optional_bias = bias.defined() ? std::optional(bias) : std::nullopt;
  return LinearFunction::apply(input, weight, optional_bias, input_first);
}

}  // namespace strait::kernels
