#include "kernels/linear.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <torch/csrc/autograd/custom_function.h>

#include "kernels/row_product.h"
#include "kernels/weight_gradient_queue.h"

namespace strait::kernels {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

constexpr double kLeastSquare = 1e-30;  // of a norm that divides

// The matrix itself, [in, out], in this type. If it is quantised, its values are valid until the
// thread's next call.
at::Tensor matrix_of(const Weight& weight, at::ScalarType type, bool input_first) {
  at::Tensor stored = weight.quantized ? weight.kept : weight.kept.to(type);
  if (weight.quantized) {
    thread_local at::Tensor memory;
    const QuantizedShape& shape = *weight.quantized;
    const at::TensorOptions options = weight.kept.options().dtype(type);
    const bool fits =
        memory.defined() && memory.scalar_type() == type && memory.device() == weight.kept.device();
    if (!fits || memory.numel() < shape.values()) {
      memory = at::Tensor();  // the previous one is freed first
      memory = at::empty({shape.values()}, options);
    }
    stored = memory.narrow(0, 0, shape.values()).view({shape.rows, shape.columns});
    dequantize_matrix({shape, weight.kept}, stored);
  }
  return input_first ? stored : stored.t();
}

// For the backward; stored in addition to the saved tensor.
void save_shape(AutogradContext& context, const std::optional<QuantizedShape>& quantized) {
  if (!quantized) return;
  const auto& [format, rows, columns] = *quantized;
  context.saved_data["quantized"] =
      std::vector<std::int64_t>{static_cast<std::int64_t>(format), rows, columns};
}

Weight saved_weight(AutogradContext& context, const at::Tensor& kept) {
  const auto found = context.saved_data.find("quantized");
  if (found == context.saved_data.end()) return kept;
  const std::vector<std::int64_t> shape = found->second.toIntVector();
  return {kept, QuantizedShape{static_cast<MatrixFormat>(shape[0]), shape[1], shape[2]}};
}

at::Tensor product(const at::Tensor& input, const Weight& weight,
                   const std::optional<at::Tensor>& bias, bool input_first) {
  const at::Tensor matrix = matrix_of(weight, input.scalar_type(), input_first);
  return bias ? at::addmm(*bias, input, matrix) : at::mm(input, matrix);
}

// Adds the gradients of the two leaves, from the slope of their product. The weight's may be
// queued.
void add_gradients(const at::Tensor& slope, const at::Tensor& input, const at::Tensor& weight,
                   const at::Tensor& bias, bool input_first) {
  if (weight.requires_grad()) {
    const at::Tensor parameter = parameter_of(weight);
    const auto add = [slope = slope.detach(), input = input.detach(), parameter, input_first] {
      at::Tensor& sum = leaf_gradient(parameter);
      if (input_first) {
        add_product(sum, input.t(), slope);
      } else {
        add_product(sum, slope.t(), input);
      }
    };
    add_now_or_later({{parameter}, add});
  }
  if (bias.defined() && bias.requires_grad()) {
    leaf_gradient(bias).add_(slope.sum(0));
    announce_leaf_gradient(bias);
  }
}

struct LinearFunction : public torch::autograd::Function<LinearFunction> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& input,
                            const at::Tensor& weight, const std::optional<at::Tensor>& bias,
                            bool input_first, const std::optional<QuantizedShape>& quantized) {
    // The gradient of a frozen weight is not needed, so neither is its input.
    const bool trained = weight.requires_grad();
    context->save_for_backward(
        {trained ? input : at::Tensor(), weight, bias.value_or(at::Tensor())});
    save_shape(*context, quantized);
    context->saved_data["input_first"] = input_first;
    return product(input, {weight, quantized}, bias, input_first);
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    const variable_list saved = context->get_saved_variables();
    const at::Tensor& weight = saved[1];
    const bool input_first = context->saved_data["input_first"].toBool();
    const at::Tensor& slope = gradients[0];
    at::Tensor input_gradient;
    if (context->needs_input_grad(0)) {
      const Weight whole = saved_weight(*context, weight);
      input_gradient = at::mm(slope, matrix_of(whole, slope.scalar_type(), input_first).t());
    }
    add_gradients(slope, saved[0], weight, saved[2], input_first);
    return {input_gradient, at::Tensor(), at::Tensor(), at::Tensor(), at::Tensor()};
  }
};

struct AdaptedLinear : public torch::autograd::Function<AdaptedLinear> {
  // The parameters of this function, and the gradients that the backward returns, have the same
  // order.
  static at::Tensor forward(AutogradContext* context, const at::Tensor& input,
                            const at::Tensor& low_input, const at::Tensor& weight,
                            const std::optional<at::Tensor>& bias, const at::Tensor& down,
                            const at::Tensor& up, double scale, bool input_first,
                            const std::optional<QuantizedShape>& quantized) {
    const at::Tensor inner = at::mm(low_input, down.t());
    context->save_for_backward({low_input, weight, down, up, inner});
    save_shape(*context, quantized);
    context->saved_data["scale"] = scale;
    context->saved_data["input_first"] = input_first;
    context->saved_data["one_input"] = low_input.is_same(input);
    const Weight whole{weight, quantized};
    return product(input, whole, bias, input_first).addmm_(inner, up.t(), 1, scale);
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    const variable_list saved = context->get_saved_variables();
    const at::Tensor& low_input = saved[0];
    const Weight weight = saved_weight(*context, saved[1]);
    const at::Tensor down = parameter_of(saved[2]);
    const at::Tensor up = parameter_of(saved[3]);
    const at::Tensor& inner = saved[4];
    const double scale = context->saved_data["scale"].toDouble();
    const at::Tensor& slope = gradients[0];
    const at::Tensor inner_gradient = at::mm(slope, up).mul_(scale);
    const auto add = [slope = slope.detach(), inner = inner.detach(), inner_gradient,
                      low_input = low_input.detach(), up, down, scale] {
      add_product(leaf_gradient(up), slope.t(), inner, scale);
      add_product(leaf_gradient(down), inner_gradient.t(), low_input);
    };
    add_now_or_later({{up, down}, add});
    at::Tensor input_gradient;
    at::Tensor low_gradient;
    if (context->needs_input_grad(0)) {
      const bool input_first = context->saved_data["input_first"].toBool();
      input_gradient = at::mm(slope, matrix_of(weight, slope.scalar_type(), input_first).t());
      if (context->saved_data["one_input"].toBool()) {
        input_gradient.addmm_(inner_gradient, down);
      } else {
        low_gradient = at::mm(inner_gradient, down);
      }
    }
    const at::Tensor none;
    return {input_gradient, low_gradient, none, none, none, none, none, none, none};
  }
};

struct ScaledOutputs : public torch::autograd::Function<ScaledOutputs> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& product,
                            const at::Tensor& to, const at::Tensor& norms) {
    context->save_for_backward({product, to, norms});
    return scaled(product, to, norms);
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    const variable_list saved = context->get_saved_variables();
    const at::Tensor& product = saved[0];
    const at::Tensor& to = saved[1];
    const at::Tensor& norms = saved[2];
    const at::Tensor& slope = gradients[0];
    leaf_gradient(to).add_(at::sum(slope * product, {0}, false, at::kFloat).div_(norms));
    announce_leaf_gradient(to);
    at::Tensor product_gradient;
    if (context->needs_input_grad(0)) product_gradient = scaled(slope, to, norms);
    return {product_gradient, at::Tensor(), at::Tensor()};
  }

 private:
  // Factors near 1 are not rounded to bfloat16, which has eight bits for them.
  static at::Tensor scaled(const at::Tensor& values, const at::Tensor& to,
                           const at::Tensor& norms) {
    return at::mul(values, at::div(to, norms)).to(values.scalar_type());
  }
};

void check_leaves(const Weight& weight, const at::Tensor& bias) {
  TORCH_INTERNAL_ASSERT(weight.kept.is_leaf() && (!bias.defined() || bias.is_leaf()),
                        "a linear layer whose weight ", weight.kept.sizes(), " is no leaf");
}

std::optional<at::Tensor> if_defined(const at::Tensor& bias) {
  return bias.defined() ? std::optional(bias) : std::nullopt;
}

}  // namespace

at::Tensor linear(const at::Tensor& input, const Weight& weight, const at::Tensor& bias,
                  bool input_first) {
  check_leaves(weight, bias);
  return LinearFunction::apply(input, weight.kept, if_defined(bias), input_first, weight.quantized);
}

at::Tensor adapted_linear(const at::Tensor& input, const Weight& weight, const at::Tensor& bias,
                          bool input_first, const LowRank& low) {
  check_leaves(weight, bias);
  TORCH_INTERNAL_ASSERT(!weight.kept.requires_grad() && (!bias.defined() || !bias.requires_grad()),
                        "an adapter of a matrix ", weight.kept.sizes(), " that is trained itself");
  return AdaptedLinear::apply(input, low.input, weight.kept, if_defined(bias), low.down, low.up,
                              low.scale, input_first, weight.quantized);
}

// |w + s·u|² = |w|² + 2s·w·u + s²·|u|², so the sum of the matrices takes no memory.
at::Tensor output_norms(const Weight& weight, bool input_first, const LowRank* low) {
  const at::NoGradGuard no_grad;
  const at::ScalarType type = weight.quantized ? at::kFloat : weight.kept.scalar_type();
  const at::Tensor matrix = matrix_of(weight, type, input_first);
  at::Tensor norms = at::linalg_vector_norm(matrix, 2, at::IntArrayRef{0}, false, at::kFloat);
  if (low == nullptr) return norms;
  const at::Tensor down = low->down.to(at::kFloat);
  const at::Tensor up = low->up.to(at::kFloat).t();
  const at::Tensor shared = at::mm(low->down.to(type), matrix).to(at::kFloat);  // [rank, out]
  const at::Tensor own = at::mm(at::mm(down, down.t()), up);
  const at::Tensor more = shared.mul_(2 * low->scale).add_(own, low->scale * low->scale);
  // Rounding may leave less than nothing of a sum that cancels the matrix.
  return norms.square_().add_(more.mul_(up).sum(0)).clamp_min_(kLeastSquare).sqrt_();
}

at::Tensor scale_outputs(const at::Tensor& product, const at::Tensor& to, const at::Tensor& norms,
                         const at::Tensor& bias) {
  TORCH_INTERNAL_ASSERT(!bias.defined() || !bias.requires_grad(),
                        "the bias of a matrix with an adapter is trained");
  const at::Tensor scaled = ScaledOutputs::apply(product, to, norms);
  return bias.defined() ? scaled + bias : scaled;
}

at::Tensor stored_matrix(const Weight& weight, at::ScalarType type) {
  return matrix_of(weight, type, /*input_first=*/true);
}

at::Tensor row_linear(const at::Tensor& input, const Weight& weight, const at::Tensor& bias,
                      bool input_first, const LowRank* low) {
  const at::NoGradGuard no_grad;
  const at::Tensor stored = stored_matrix(weight, input.scalar_type());
  at::Tensor product = row_product(input, stored, bias, input_first);
  if (low == nullptr) return product;
  // The scale is a product of its own: fused with the sum, values would be rounded by their place.
  const at::Tensor inner = row_product(low->input, low->down, {}, false).mul_(low->scale);
  return product.add(row_product(inner, low->up, {}, false));
}

}  // namespace strait::kernels
