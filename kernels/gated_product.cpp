#include "kernels/gated_product.h"

#include <ATen/ATen.h>
#include <c10/core/DeviceGuard.h>
#include <torch/csrc/autograd/custom_function.h>

#include <optional>
#include <vector>

#include "kernels/kernel_tensors.h"

namespace strait::kernels {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

// For two contiguous tensors, or the halves of one.
GatedShape gated_shape_of(const at::Tensor& gate, bool halves, Activation activation) {
  const std::int64_t stride = gate.size(-1);
  return {element_of(gate.scalar_type()), activation, gate.numel() / stride,
          halves ? stride / 2 : stride, stride};
}

// The start of `up`: in its own memory, or in the middle of a row.
const void* up_of(const at::Tensor& gate, const at::Tensor& up, const GatedShape& shape) {
  if (up.defined()) return up.const_data_ptr();
  return static_cast<const char*>(gate.const_data_ptr()) + shape.width * gate.element_size();
}
void* mutable_up_of(const at::Tensor& gate, const at::Tensor& up, const GatedShape& shape) {
  if (up.defined()) return up.mutable_data_ptr();
  return static_cast<char*>(gate.mutable_data_ptr()) + shape.width * gate.element_size();
}

bool gate_kernel_takes(const at::Tensor& gate, const at::Tensor& up) {
  if (!layer_kernels_take(gate) || !gate.is_contiguous() || gate.numel() == 0) return false;
  if (!up.defined()) return gate.size(-1) % 16 == 0;
  return up.is_contiguous() && up.sizes() == gate.sizes() && up.device() == gate.device() &&
         up.scalar_type() == gate.scalar_type() && gate.size(-1) % 8 == 0;
}

struct GatedProduct : public torch::autograd::Function<GatedProduct> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& gate,
                            const std::optional<at::Tensor>& up, std::int64_t activation) {
    const c10::OptionalDeviceGuard on_it(gate.device());
    const GatedShape shape = gated_shape_of(gate, !up, static_cast<Activation>(activation));
    const at::Tensor other = up.value_or(at::Tensor());
    std::vector<std::int64_t> sizes = gate.sizes().vec();
    sizes.back() = shape.width;
    at::Tensor product = at::empty(sizes, gate.options());
    cuda::gated_product(stream_of(gate), shape, gate.const_data_ptr(), up_of(gate, other, shape),
                        product.mutable_data_ptr());
    context->save_for_backward({gate, other});
    context->saved_data["activation"] = activation;
    return product;
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    const variable_list saved = context->get_saved_variables();
    const at::Tensor& gate = saved[0];
    const at::Tensor& up = saved[1];
    const c10::OptionalDeviceGuard on_it(gate.device());
    const auto activation = static_cast<Activation>(context->saved_data["activation"].toInt());
    const GatedShape shape = gated_shape_of(gate, !up.defined(), activation);
    const at::Tensor slope = gradients[0].contiguous();
    const at::Tensor into_gate = at::empty_like(gate);
    const at::Tensor into_up = up.defined() ? at::empty_like(up) : at::Tensor();
    cuda::gated_product_gradient(stream_of(gate), shape, gate.const_data_ptr(),
                                 up_of(gate, up, shape), slope.const_data_ptr(),
                                 into_gate.mutable_data_ptr(),
                                 mutable_up_of(into_gate, into_up, shape));
    return {into_gate, into_up, at::Tensor()};
  }
};

}  // namespace

at::Tensor activate(const at::Tensor& input, Activation activation) {
  switch (activation) {
    case Activation::gelu_erf:
      return at::gelu(input, "none");
    case Activation::gelu_tanh:
      return at::gelu(input, "tanh");
    case Activation::relu:
      return at::relu(input);
    case Activation::silu:
      return at::silu(input);
  }
  TORCH_INTERNAL_ASSERT(false, "activation ", static_cast<int>(activation));
}

at::Tensor clamped_product(const at::Tensor& pairs, const ClampedGate& gate) {
  const at::Tensor both = pairs.unflatten(-1, {-1, 2});
  const at::Tensor open = both.select(-1, 0).clamp_max(gate.limit);
  const at::Tensor up = both.select(-1, 1).clamp(-gate.limit, gate.limit);
  return (open * (open * gate.slope).sigmoid()) * (up + 1);
}

at::Tensor gated_product(const at::Tensor& gate, const at::Tensor& up, Activation activation) {
  if (gate_kernel_takes(gate, up)) {
    return GatedProduct::apply(gate, up.defined() ? std::optional(up) : std::nullopt,
                               static_cast<std::int64_t>(activation));
  }
  if (up.defined()) return activate(gate, activation).mul(up);
  const std::vector<at::Tensor> halves = gate.chunk(2, -1);
  return activate(halves[0], activation).mul(halves[1]);
}

}  // namespace strait::kernels
