#include "kernels/quantized_heads.h"

#include <ATen/ATen.h>

namespace strait::kernels {
namespace {

constexpr double kLevels = 127;
// Of a vector of zeros, which is divided by it.
constexpr double kLeastScale = 1e-30;

}  // namespace

// Each operator rounds every value as IEEE 754 says, so that bits depend on no other vector.
QuantizedHeads quantize_heads(const at::Tensor& heads) {
  const at::Tensor values = heads.to(at::kFloat);
  const at::Tensor scales = values.abs().amax(-1).div_(kLevels).clamp_min_(kLeastScale);
  return {values.div(scales.unsqueeze(-1)).round_().to(at::kChar), scales};
}

at::Tensor dequantize_heads(const QuantizedHeads& heads) {
  return heads.values.to(at::kFloat).mul_(heads.scales.unsqueeze(-1));
}

}  // namespace strait::kernels
