#include "models/activation.h"

#include <ATen/ATen.h>

#include <array>
#include <vector>

#include "kernels/gated_product.h"

namespace strait::models {
namespace {

struct NamedActivation {
  std::string_view name;
  Activation activation;
};

constexpr std::array kActivations{
    NamedActivation{"gelu", Activation::gelu_erf},
    NamedActivation{"gelu_new", Activation::gelu_tanh},
    NamedActivation{"gelu_fast", Activation::gelu_tanh},
    NamedActivation{"gelu_pytorch_tanh", Activation::gelu_tanh},
    NamedActivation{"relu", Activation::relu},
    NamedActivation{"silu", Activation::silu},
    NamedActivation{"swish", Activation::silu},
};

}  // namespace

std::optional<Activation> activation_named(std::string_view name) {
  for (const NamedActivation& known : kActivations) {
    if (known.name == name) return known.activation;
  }
  return std::nullopt;
}

std::vector<std::string_view> activation_names() {
  std::vector<std::string_view> names;
  names.reserve(kActivations.size());
  for (const NamedActivation& known : kActivations) names.push_back(known.name);
  return names;
}

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

at::Tensor activate_gated(const at::Tensor& gate, const at::Tensor& up, Activation activation) {
  if (activation == Activation::silu || activation == Activation::gelu_tanh) {
    return kernels::gated_product(gate, up,
                                  activation == Activation::silu
                                      ? kernels::GateFunction::silu
                                      : kernels::GateFunction::gelu_tanh);
  }
  if (up.defined()) return activate(gate, activation).mul(up);
  const std::vector<at::Tensor> halves = gate.chunk(2, -1);
  return activate(halves[0], activation).mul(halves[1]);
}

}  // namespace strait::models
