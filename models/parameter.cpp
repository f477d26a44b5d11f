#include "models/parameter.h"

#include <ATen/ATen.h>

#include <vector>

namespace strait::models {

bool ParameterMaker::is_trained(const std::string& tensor) const {
  // The module of "lm_head.weight" is "lm_head".
  return lora_ == nullptr || is_saved_module(*lora_, tensor.substr(0, tensor.rfind('.')));
}

at::Tensor ParameterMaker::leaf(at::IntArrayRef shape, bool trained) const {
  return at::empty(shape, at::TensorOptions(type_).device(device_)).requires_grad_(trained);
}

at::Tensor ParameterMaker::make(const std::string& name, at::IntArrayRef shape) {
  const bool trained = is_trained(name);
  made_.push_back({name, leaf(shape, trained), true, trained});
  return made_.back().value;
}

at::Tensor ParameterMaker::make_tied(const std::string& name, at::IntArrayRef shape,
                                     const at::Tensor& embedding) {
  const bool trained = is_trained(name);
  at::Tensor value =
      embedding.defined() ? embedding.detach().requires_grad_(trained) : leaf(shape, trained);
  made_.push_back({name, value, false, trained});
  return value;
}

std::optional<Adapter> ParameterMaker::make_adapter(const std::string& name, std::int64_t input,
                                                    std::int64_t output) {
  if (lora_ == nullptr) return std::nullopt;
  const std::optional<AdapterShape> shape = adapter_of(*lora_, name);
  if (!shape) return std::nullopt;
  Adapter adapter{leaf({shape->rank, input}, true), leaf({output, shape->rank}, true), *shape};
  made_.push_back({name + kAdapterDown, adapter.down, true, true, true});
  made_.push_back({name + kAdapterUp, adapter.up, true, true, true});
  return adapter;
}

}  // namespace strait::models
