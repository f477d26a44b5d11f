#pragma once

#include <ATen/core/Tensor.h>

#include <optional>
#include <utility>

#include "kernels/expert_products.h"
#include "models/activation.h"
#include "models/batch_invariance.h"
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
    std::vector<at::Tensor> inner{up_.forward(input, pass)};
    if (gate_) inner.insert(inner.begin(), gate_->forward(input, pass));
    const at::Tensor activated = by_value(pass, inner, [&](const std::vector<at::Tensor>& values) {
      if (!gated_) return kernels::activate(values[0], activation_);
      if (clamped_.limit > 0) return kernels::clamped_product(values[0], clamped_);
      return kernels::gated_product(values[0], gate_ ? values[1] : at::Tensor(), activation_);
    });
    return down_.forward(activated, pass);
  }

  // Its leaves, for kernels that compute several experts. Nullopt: it is not of their kind.
  std::optional<kernels::ExpertMatrices> matrices() const {
    const bool plain = up_.is_plain() && down_.is_plain() && (!gate_ || gate_->is_plain());
    if (!plain || !gated_ || activation_ != Activation::silu) return std::nullopt;
    return kernels::ExpertMatrices{gate_ ? gate_->weight() : at::Tensor(), up_.weight(), up_.bias(),
                                   down_.weight(), down_.bias()};
  }
  kernels::ExpertForm form() const {
    return {up_.shape().layout == MatrixLayout::input_output, clamped_};
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
