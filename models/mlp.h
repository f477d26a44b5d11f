#pragma once

#include <ATen/core/Tensor.h>

#include <optional>
#include <utility>

#include "models/activation.h"
#include "models/linear.h"

namespace strait::models {

// down(activation(up(x))), or gated: down(activation(gate(x)) · up(x)). Without a separate gate
// matrix, `up` gives both: the gate first, or with `clamped` by pairs.
class Mlp {
 public:
  Mlp(std::optional<Linear> gate, Linear up, bool gated, Activation activation, Linear down,
      kernels::ClampedGate clamped = {})
      : gate_(std::move(gate)),
        up_(std::move(up)),
        gated_(gated),
        activation_(activation),
        down_(std::move(down)),
        clamped_(clamped) {}

  at::Tensor forward(const at::Tensor& input, const Pass& pass) const {
    const at::Tensor inner = up_.forward(input, pass);
    if (!gated_) return down_.forward(kernels::activate(inner, activation_), pass);
    if (clamped_.limit > 0) {
      return down_.forward(kernels::clamped_product(inner, clamped_), pass);
    }
    const at::Tensor product =
        gate_ ? kernels::gated_product(gate_->forward(input, pass), inner, activation_)
              : kernels::gated_product(inner, {}, activation_);
    return down_.forward(product, pass);
  }

 private:
  std::optional<Linear> gate_;
  Linear up_;
  bool gated_;
  Activation activation_;
  Linear down_;
  kernels::ClampedGate clamped_;
};

}  // namespace strait::models
