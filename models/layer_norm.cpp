#include "models/layer_norm.h"

#include <ATen/ATen.h>

namespace strait::models {

LayerNorm::LayerNorm(ParameterMaker& maker, const std::string& name, std::int64_t width,
                     double epsilon)
    : weight_(maker.make(name + ".weight", {width})),
      bias_(maker.make(name + ".bias", {width})),
      epsilon_(epsilon) {}

at::Tensor LayerNorm::forward(const at::Tensor& input) const {
  return at::layer_norm(input, weight_.sizes(), weight_, bias_, epsilon_);
}

}  // namespace strait::models
