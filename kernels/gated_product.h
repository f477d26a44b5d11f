#pragma once

#include <ATen/core/Tensor.h>

#include "kernels/gpu_layers.h"

namespace strait::kernels {

at::Tensor activate(const at::Tensor& input, Activation activation);

// activation(gate) · up of a gated MLP, differentiable. Either both have equal sizes, or `up` is
// undefined and `gate` has the columns of both, the gate first. On a GPU one kernel in each
// direction, which keeps no activated values for the backward; otherwise libtorch's operators.
at::Tensor gated_product(const at::Tensor& gate, const at::Tensor& up, Activation activation);

// Values of one row are gate, up, gate, up, … The gate is cut off above the limit, up on both
// sides, and the product is gate · sigmoid(slope · gate) · (up + 1). Differentiable.
struct ClampedGate {
  double slope = 0;
  double limit = 0;  // 0: this is not the MLP's product
};
at::Tensor clamped_product(const at::Tensor& pairs, const ClampedGate& gate);

}  // namespace strait::kernels
