#pragma once

#include <ATen/core/Tensor.h>

namespace strait::kernels {

// The float32 matrix [in, out] whose transpose MXFP4 files hold: `blocks`, uint8 [out · groups,
// 16], are pairs of values, the first in the lower four bits, and `scales`, uint8 [out, groups],
// the exponent of each 32 values, plus 127. On the CPU. Exact.
at::Tensor dequantize_mxfp4(const at::Tensor& blocks, const at::Tensor& scales);

}  // namespace strait::kernels
