#pragma once

#include <ATen/core/Tensor.h>

#include "kernels/gpu_layers.h"

namespace strait::kernels {

at::Tensor activate(const at::Tensor& input, Activation activation);

// activation(gate) · up of a gated MLP, differentiable. Either both have equal sizes, or `up` is
// undefined and `gate` has the columns of both, the gate first. On a GPU one kernel in each
// direction, which keeps no activated values for the backward; otherwise libtorch's operators.
at::Tensor gated_product(const at::Tensor& gate, const at::Tensor& up, Activation activation);

}  // namespace strait::kernels
