#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>

#include "models/parameter.h"

namespace strait::models {

// How a family stores its matrices on the hub.
enum class MatrixLayout : std::uint8_t {
  input_output,  // [in, out]: gpt2's Conv1D
  output_input,  // [out, in]: all other families
};

struct LinearShape {
  std::int64_t input = 0;
  std::int64_t output = 0;
  MatrixLayout layout = MatrixLayout::output_input;
  bool bias = true;
};

// A matrix product with an optional bias, as the tensors NAME.weight and NAME.bias. Every large
// weight of a block sits in one of these, so that how its gradient is made is decided here alone.
class Linear {
 public:
  Linear(ParameterMaker& maker, const std::string& name, const LinearShape& shape);

  at::Tensor forward(const at::Tensor& input) const;  // [..., input] to [..., output]

 private:
  LinearShape shape_;
  at::Tensor weight_;
  at::Tensor bias_;
};

}  // namespace strait::models
