#pragma once

#include <ATen/core/Tensor.h>

namespace strait::kernels {

// Vectors of heads in 8 bits: values[..., i] · scale is what vector i has been, off by at most half
// a scale, which is 1/127 of its largest magnitude. A pure function of each vector.
struct QuantizedHeads {
  at::Tensor values;  // int8 [..., width]
  at::Tensor scales;  // float32 [...]
};
QuantizedHeads quantize_heads(const at::Tensor& heads);

// In float32.
at::Tensor dequantize_heads(const QuantizedHeads& heads);

}  // namespace strait::kernels
