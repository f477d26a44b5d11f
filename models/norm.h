#pragma once

#include <ATen/core/Tensor.h>

#include "models/parameter.h"

namespace strait::models {

enum class NormKind : std::uint8_t {
  layer,         // subtracts the mean, divides by the deviation; NAME.weight and NAME.bias
  rms,           // divides by the root mean square, in float32; NAME.weight
  rms_one_plus,  // multiplies by 1 + NAME.weight, which is drawn as zero
};

struct NormOptions {
  NormKind kind = NormKind::layer;
  double epsilon = 1e-5;
};

// Normalises the last dimension.
class Norm {
 public:
  Norm(ParameterMaker& maker, const std::string& name, std::int64_t width, NormOptions options);

  at::Tensor forward(const at::Tensor& input) const;

 private:
  NormOptions options_;
  at::Tensor weight_;
  at::Tensor bias_;
};

}  // namespace strait::models
