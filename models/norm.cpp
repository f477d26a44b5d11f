#include "models/norm.h"

#include <ATen/ATen.h>

#include "kernels/rms_norm.h"

namespace strait::models {

Norm::Norm(ParameterMaker& maker, const std::string& name, std::int64_t width, NormOptions options)
    : options_(options), weight_(maker.make(name + ".weight", {width})) {
  if (options.kind == NormKind::layer) bias_ = maker.make(name + ".bias", {width});
}

at::Tensor Norm::forward(const at::Tensor& input) const {
  if (options_.kind == NormKind::layer) {
    return at::layer_norm(input, {weight_.size(0)}, weight_, bias_, options_.epsilon);
  }
  return kernels::rms_norm(input, weight_,
                           {options_.epsilon, options_.kind == NormKind::rms_one_plus});
}

}  // namespace strait::models
