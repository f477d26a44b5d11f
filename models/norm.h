#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>

#include "models/parameter.h"

namespace strait::models {

enum class NormKind : std::uint8_t {
  layer,         // minus the mean, over the deviation; NAME.weight and NAME.bias
  rms,           // over the root mean square, computed in float32; NAME.weight
  rms_one_plus,  // times 1 + NAME.weight, which is drawn as zero
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
