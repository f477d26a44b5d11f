#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

namespace strait::models {

enum class Activation : std::uint8_t { gelu_erf, gelu_tanh, relu, silu };

// By the names that config.json files use ("gelu" is the exact one, "gelu_new" and
// "gelu_pytorch_tanh" the approximation); nullopt: unknown.
std::optional<Activation> activation_named(std::string_view name);
std::vector<std::string_view> activation_names();

at::Tensor activate(const at::Tensor& input, Activation activation);

// activation(gate) · up; where `up` is undefined, `gate` has the columns of both, the gate first.
at::Tensor activate_gated(const at::Tensor& gate, const at::Tensor& up, Activation activation);

}  // namespace strait::models
