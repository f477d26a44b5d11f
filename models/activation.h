#pragma once

#include <optional>
#include <string_view>
#include <vector>

#include "kernels/gated_product.h"

namespace strait::models {

using kernels::Activation;

// By the names that config.json files use ("gelu" is the exact one, "gelu_new" and
// "gelu_pytorch_tanh" the approximation); nullopt: unknown.
std::optional<Activation> activation_named(std::string_view name);
std::vector<std::string_view> activation_names();

}  // namespace strait::models
