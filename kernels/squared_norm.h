#pragma once

#include <ATen/core/Tensor.h>

namespace strait::kernels {

// The squared L2 norm of a float32 (or narrower) tensor on the CPU, summed in double. The order of
// the sum depends on the number of elements alone: same values, same bits, at any number of
// threads. Finite exactly if all values are: the square of any finite float32, and the sum of all
// of them, fits a double by far.
double squared_norm(const at::Tensor& tensor);

// Those of several tensors on one device: float64 there, without a wait for it. On the CPU the same
// bits as above.
at::Tensor squared_norms(at::TensorList tensors);

}  // namespace strait::kernels
