#pragma once

#include <optional>
#include <string_view>
#include <vector>

#include "kernels/gated_product.h"

namespace strait::models {

using kernels::Activation;

// By the names in config.json files: "gelu" is the exact one, "gelu_new" and "gelu_pytorch_tanh"
// are the approximation. Nullopt: unknown.
std::optional<Activation> activation_named(std::string_view name);
std::vector<std::string_view> activation_names();

}  // namespace strait::models
