#include "models/activation.h"

#include <array>

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

}  // namespace strait::models
