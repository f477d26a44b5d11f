#include "models/parameter.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <fmt/format.h>

#include <utility>

#include "framework/error.h"

namespace strait::models {

void assign(const Parameter& parameter, const at::Tensor& values) {
  const at::NoGradGuard no_grad;
  if (!parameter.quantized) {
    parameter.value.detach().copy_(values);
    return;
  }
  const at::ScalarType type = values.scalar_type();
  const bool readable = type == at::kFloat || type == at::kBFloat16 || type == at::kHalf;
  const at::Tensor matrix = readable ? values : values.to(at::kFloat);
  if (quantize_matrix(matrix.contiguous(), *parameter.quantized)) return;
  throw InputError(
      fmt::format("tensor {} has values that are not finite, or huge, and cannot be quantised; get "
                  "the model's files again, or leave model.quantization out",
                  parameter.name));
}

bool ParameterMaker::is_trained(const std::string& tensor) const {
  // The module of "lm_head.weight" is "lm_head".
  return lora_ == nullptr || is_saved_module(*lora_, tensor.substr(0, tensor.rfind('.')));
}

at::Tensor ParameterMaker::leaf(at::IntArrayRef shape, bool trained) const {
  return at::empty(shape, at::TensorOptions(type_).device(device_)).requires_grad_(trained);
}

void ParameterMaker::add(Parameter parameter) {
  parameter.token_share = token_share_;
  made_.push_back(std::move(parameter));
}

at::Tensor ParameterMaker::make(const std::string& name, at::IntArrayRef shape) {
  const bool trained = is_trained(name);
  add({name, leaf(shape, trained), true, trained});
  return made_.back().value;
}

at::Tensor ParameterMaker::make_wide(const std::string& name, at::IntArrayRef shape) {
  const at::ScalarType others = std::exchange(type_, at::kFloat);
  at::Tensor value = make(name, shape);
  type_ = others;
  return value;
}

at::Tensor ParameterMaker::make_tied(const std::string& name, at::IntArrayRef shape,
                                     const at::Tensor& embedding) {
  const bool trained = is_trained(name);
  at::Tensor value =
      embedding.defined() ? embedding.detach().requires_grad_(trained) : leaf(shape, trained);
  add({name, value, false, trained});
  return value;
}

kernels::Weight ParameterMaker::make_matrix(const std::string& name, at::IntArrayRef shape) {
  if (is_trained(name) || !lora_->quantization) return make(name, shape);
  const kernels::QuantizedShape quantized{*lora_->quantization, shape[0], shape[1]};
  Parameter matrix;
  matrix.name = name;
  matrix.value = at::empty(shape, at::TensorOptions(type_).device(at::kMeta));
  matrix.trained = false;
  matrix.quantized = make_quantized_matrix(quantized, device_);
  add(matrix);
  return {matrix.quantized->bytes, quantized};
}

std::optional<Adapter> ParameterMaker::make_adapter(const std::string& name, const Matrix& matrix,
                                                    std::int64_t input, std::int64_t output) {
  if (lora_ == nullptr || (joined_ && lora_->parameters.empty())) return std::nullopt;
  const std::optional<AdapterShape> shape = adapter_of(*lora_, name);
  if (!shape) return std::nullopt;
  Adapter adapter{leaf({shape->rank, input}, true), leaf({output, shape->rank}, true), *shape};
  add({name + kAdapterDown, adapter.down, true, true, true});
  add({name + kAdapterUp, adapter.up, true, true, true});
  if (!shape->decomposed) return adapter;
  // Float32 whatever the type of the others: they are near what they divide by.
  const at::ScalarType others = std::exchange(type_, at::kFloat);
  adapter.norms = leaf({output}, true);
  type_ = others;
  Parameter norms{name + kAdapterNorms, adapter.norms, true, true, true};
  norms.norms_of = matrix;
  add(std::move(norms));
  return adapter;
}

}  // namespace strait::models
