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
  adapter_ = maker.make_adapter(name, {weight_, input_first}, shape.input, shape.output);
}

at::Tensor Linear::forward(const at::Tensor& input, const Pass& pass) const {
  const at::Tensor rows = input.reshape({-1, shape_.input});
  const bool input_first = shape_.layout == MatrixLayout::input_output;
  at::Tensor product;
  const bool rescales = adapter_ && pass.adapters && adapter_->norms.defined();
  // Norms do not scale the bias, so it is added last.
  const at::Tensor bias = rescales ? at::Tensor() : bias_;
  std::optional<kernels::LowRank> low;
  if (adapter_ && pass.adapters) {
    low = kernels::LowRank{adapter_->down, adapter_->up, adapter_->shape.scale, rows};
  }
  if (pass.cache != nullptr) {
    product = kernels::row_linear(rows, weight_, bias, input_first, low ? &*low : nullptr);
  } else if (low) {
    if (pass.training && adapter_->shape.dropout > 0) {
      // The name of a matrix is unique in the model, so the key needs no layer.
      kernels::DropoutKey key = pass.dropout_key(0, 0);
      key.site = dropout_site_;
      low->input = kernels::dropout(rows, adapter_->shape.dropout, key);
    }
    // DoRA's norms scale the product of what dropout has left, too.
    const at::Tensor& kept = rescales ? low->input : rows;
    product = kernels::adapted_linear(kept, weight_, bias, input_first, *low);
  } else {
    product = kernels::linear(rows, weight_, bias, input_first);
  }
  if (rescales) product = rescaled(product, rows, *low);
  std::vector<std::int64_t> sizes = input.sizes().vec();
  sizes.back() = shape_.output;
  return product.view(sizes);
}

// PEFT's forward of DoRA: the matrix multiplies its whole input, and what the norms add to that is
// computed from what dropout has left of it.
at::Tensor Linear::rescaled(const at::Tensor& product, const at::Tensor& rows,
                            const kernels::LowRank& low) const {
  const bool input_first = shape_.layout == MatrixLayout::input_output;
  const at::Tensor norms = kernels::output_norms(weight_, input_first, &low);
  const bool drops = !low.input.is_same(rows);
  at::Tensor scaled =
      kernels::scale_outputs(product, adapter_->norms, norms, drops ? at::Tensor() : bias_);
  if (!drops) return scaled;
  return scaled + kernels::linear(rows - low.input, weight_, bias_, input_first);
}

at::Tensor Linear::factors(const Pass& pass) const {
  if (!adapter_ || !pass.adapters || !adapter_->norms.defined()) return {};
  const bool input_first = shape_.layout == MatrixLayout::input_output;
  const kernels::LowRank low{adapter_->down, adapter_->up, adapter_->shape.scale, {}};
  return adapter_->norms.detach() / kernels::output_norms(weight_, input_first, &low);
}

}  // namespace strait::models
