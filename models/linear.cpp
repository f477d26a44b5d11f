#include "models/linear.h"

#include <ATen/ATen.h>

#include "kernels/linear.h"

namespace strait::models {

Linear::Linear(ParameterMaker& maker, const std::string& name, const LinearShape& shape)
    : shape_(shape) {
  const bool input_first = shape.layout == MatrixLayout::input_output;
  weight_ = maker.make(name + ".weight", {input_first ? shape.input : shape.output,
                                          input_first ? shape.output : shape.input});
  if (shape.bias) bias_ = maker.make(name + ".bias", {shape.output});
}

at::Tensor Linear::forward(const at::Tensor& input) const {
  const at::Tensor rows = input.reshape({-1, shape_.input});
  const at::Tensor product =
      kernels::linear(rows, weight_, bias_, shape_.layout == MatrixLayout::input_output);
  std::vector<std::int64_t> sizes = input.sizes().vec();
  sizes.back() = shape_.output;
  return product.view(sizes);
}

}  // namespace strait::models
