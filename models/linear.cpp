#include "models/linear.h"

#include <ATen/ATen.h>

#include "kernels/linear.h"
#include "kernels/random.h"
#include "kernels/row_product.h"

namespace strait::models {

Linear::Linear(ParameterMaker& maker, const std::string& name, const LinearShape& shape)
    : shape_(shape), dropout_site_(kernels::hash_name(name)) {
  const bool input_first = shape.layout == MatrixLayout::input_output;
  weight_ = maker.make_matrix(name + ".weight", {input_first ? shape.input : shape.output,
                                                 input_first ? shape.output : shape.input});
  if (shape.bias) bias_ = maker.make(name + ".bias", {shape.output});
  adapter_ = maker.make_adapter(name, shape.input, shape.output);
}

at::Tensor Linear::forward(const at::Tensor& input, const Pass& pass) const {
  const at::Tensor rows = input.reshape({-1, shape_.input});
  const bool input_first = shape_.layout == MatrixLayout::input_output;
  at::Tensor product;
  std::optional<kernels::LowRank> low;
  if (adapter_ && pass.adapters) {
    low = kernels::LowRank{adapter_->down, adapter_->up, adapter_->shape.scale, rows};
  }
  if (pass.cache != nullptr) {
    product = kernels::row_linear(rows, weight_, bias_, input_first, low ? &*low : nullptr);
  } else if (low) {
    if (pass.training && adapter_->shape.dropout > 0) {
      // The name of a matrix is unique in the model, so the key needs no layer.
      kernels::DropoutKey key = pass.dropout_key(0, 0);
      key.site = dropout_site_;
      low->input = kernels::dropout(rows, adapter_->shape.dropout, key);
    }
    product = kernels::adapted_linear(rows, weight_, bias_, input_first, *low);
  } else {
    product = kernels::linear(rows, weight_, bias_, input_first);
  }
  std::vector<std::int64_t> sizes = input.sizes().vec();
  sizes.back() = shape_.output;
  return product.view(sizes);
}

}  // namespace strait::models
