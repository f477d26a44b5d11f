#include "launcher/planner/checkpoint_weights.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include <utility>

#include "kernels/quantized_matrix.h"
#include "models/families.h"
#include "models/initialize.h"

namespace strait::planner {
namespace {

// A matrix as training computes with it.
at::Tensor dequantized(const at::Tensor& values, kernels::MatrixFormat format,
                       const std::string& name) {
  models::Parameter matrix{name, values};
  matrix.quantized =
      kernels::make_quantized_matrix({format, values.size(0), values.size(1)}, at::kCPU);
  models::assign(matrix, values);
  at::Tensor read = at::empty_like(values);
  kernels::dequantize_matrix(*matrix.quantized, read);
  return read;
}

}  // namespace

CheckpointWeights::CheckpointWeights(const recipe::Recipe& recipe, models::ModelConfig config,
                                     const std::filesystem::path& checkpoint)
    : config_(std::move(config)),
      seed_(static_cast<std::uint64_t>(recipe.seed)),
      checkpoint_(checkpoint, store::Verify::sizes, store::Part::weights) {
  for (const models::LayerCost& layer : models::describe(config_).layers) {
    for (const models::TensorShape& tensor : layer.tensors) shapes_.emplace(tensor.name, tensor);
  }
  if (recipe.model.weights != recipe::Weights::random) model_.emplace(recipe.model, config_);
}

at::Tensor CheckpointWeights::read(const std::string& name) const {
  const models::TensorShape& tensor = shapes_.at(name);
  if (tensor.trained) return checkpoint_.read(name);
  if (model_) return model_->read(name);
  const models::Parameter drawn{name, at::empty(tensor.shape)};
  models::initialize(drawn, config_, seed_);
  return drawn.value;
}

at::Tensor CheckpointWeights::read_merged(const std::string& name) const {
  at::Tensor values = read(name).to(at::kFloat);
  if (const auto format = shapes_.at(name).quantization)
    values = dequantized(values, *format, name);
  const std::string matrix = name.substr(0, name.rfind('.'));
  if (!name.ends_with(".weight") || !shapes_.contains(matrix + models::kAdapterDown)) return values;
  const at::NoGradGuard no_grad;
  const double scale = models::adapter_of(*config_.lora, matrix)->scale;
  const at::Tensor down = checkpoint_.read(matrix + models::kAdapterDown);
  const at::Tensor up = checkpoint_.read(matrix + models::kAdapterUp);
  const at::Tensor product = at::mm(up, down).mul_(scale);
  return values.add_(models::family_of(config_).input_first ? product.t() : product);
}

ModelWeights::Origin CheckpointWeights::origin(const std::string& name) const {
  return model_ ? model_->origin(name) : ModelWeights::Origin{name, at::kFloat};
}

}  // namespace strait::planner
