#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>

#include "models/parameter.h"

namespace strait::models {

// Normalises the last dimension; NAME.weight and NAME.bias.
class LayerNorm {
 public:
  LayerNorm(ParameterMaker& maker, const std::string& name, std::int64_t width, double epsilon);

  at::Tensor forward(const at::Tensor& input) const;

 private:
  at::Tensor weight_;
  at::Tensor bias_;
  double epsilon_;
};

}  // namespace strait::models
