#pragma once

#include <ATen/core/Tensor.h>

#include "kernels/linear.h"
#include "models/parameter.h"
#include "models/pass.h"

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

// A matrix product with an optional bias, as the tensors NAME.weight and NAME.bias, and with an
// adapter if LoRA asks for one. Every large weight of a block is in a Linear, so the way to compute
// its gradient is decided only here.
class Linear {
 public:
  Linear(ParameterMaker& maker, const std::string& name, const LinearShape& shape);

  // [..., input] to [..., output]
  at::Tensor forward(const at::Tensor& input, const Pass& pass) const;

  const LinearShape& shape() const { return shape_; }
  // The matrix is a leaf, and the whole product.
  bool is_plain() const { return !adapter_ && !weight_.quantized; }
  const at::Tensor& weight() const { return weight_.kept; }
  // Dequantised if it is quantised: kernels::stored_matrix().
  at::Tensor stored(at::ScalarType type) const { return kernels::stored_matrix(weight_, type); }
  // Null: none in this pass.
  const Adapter* adapter(const Pass& pass) const {
    return adapter_ && pass.adapters ? &*adapter_ : nullptr;
  }
  const at::Tensor& bias() const { return bias_; }
  // What DoRA multiplies each output by, without a gradient; undefined: nothing.
  at::Tensor factors(const Pass& pass) const;

 private:
  at::Tensor rescaled(const at::Tensor& product, const at::Tensor& rows,
                      const kernels::LowRank& low) const;

  LinearShape shape_;
  kernels::Weight weight_;
  at::Tensor bias_;
  std::optional<Adapter> adapter_;
  std::uint64_t dropout_site_;  // of the adapter; part of the keys of its masks
};

}  // namespace strait::models
