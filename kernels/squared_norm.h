#pragma once

#include <ATen/core/Tensor.h>

namespace strait::kernels {

// The squared L2 norm of a float32 (or narrower) tensor on the CPU, summed in double. The order of
// the sum depends only on the number of elements: same values, same bits, for any number of
// threads. Finite exactly if all values are, because a double easily holds the square of any finite
// float32 and their sum.
double squared_norm(const at::Tensor& tensor);

// The squared norms of several tensors on one device, as float64 there, without waiting for it. On
// the CPU the same bits as above.
at::Tensor squared_norms(at::TensorList tensors);

}  // namespace strait::kernels
