#pragma once

#include <ATen/core/Tensor.h>

namespace strait::kernels {

// The squared L2 norm of a float32 (or narrower) tensor, summed in double. On the CPU the order of
// the sum depends on the number of elements alone: same values, same bits, at any number of
// threads.
double squared_norm(const at::Tensor& tensor);

// No element is infinite or NaN.
bool all_finite(const at::Tensor& tensor);

}  // namespace strait::kernels
