#include "models/parameter.h"

#include <ATen/ATen.h>

namespace strait::models {

at::Tensor ParameterMaker::make(const std::string& name, at::IntArrayRef shape) {
  const auto options = at::TensorOptions(type_).device(device_);
  at::Tensor value = at::empty(shape, options).requires_grad_();
  made_.push_back({name, value, true});
  return value;
}

at::Tensor ParameterMaker::make_tied(const std::string& name, at::IntArrayRef shape,
                                     const at::Tensor& embedding) {
  const auto options = at::TensorOptions(type_).device(device_);
  at::Tensor value =
      (embedding.defined() ? embedding.detach() : at::empty(shape, options)).requires_grad_();
  made_.push_back({name, value, false});
  return value;
}

}  // namespace strait::models
