#pragma once

#include <ATen/core/Tensor.h>

#include <utility>

#include "models/activation.h"
#include "models/linear.h"

namespace strait::models {

// Up, activation, down.
class Mlp {
 public:
  Mlp(Linear up, Activation activation, Linear down)
      : up_(std::move(up)), activation_(activation), down_(std::move(down)) {}

  at::Tensor forward(const at::Tensor& input) const {
    return down_.forward(activate(up_.forward(input), activation_));
  }

 private:
  Linear up_;
  Activation activation_;
  Linear down_;
};

}  // namespace strait::models
