#include "launcher/app/checkpoint_weights.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include "models/families.h"
#include "models/initialize.h"

namespace strait::app {

CheckpointWeights::CheckpointWeights(const RunCheckpoint& source)
    : source_(source), checkpoint_(source.checkpoint, store::Verify::sizes, store::Part::weights) {
  for (const models::LayerCost& layer : models::describe(source.config).layers) {
    for (const models::TensorShape& tensor : layer.tensors) shapes_.emplace(tensor.name, tensor);
  }
  const recipe::Recipe::Model& model = source.run.plan.recipe.model;
  if (model.weights != recipe::Weights::random) model_.emplace(model, source.config);
}

at::Tensor CheckpointWeights::read(const std::string& name) const {
  const models::TensorShape& tensor = shapes_.at(name);
  if (tensor.trained) return checkpoint_.read(name);
  if (model_) return model_->read(name);
  const models::Parameter drawn{name, at::empty(tensor.shape)};
  models::initialize(drawn, source_.config,
                     static_cast<std::uint64_t>(source_.run.plan.recipe.seed));
  return drawn.value;
}

at::Tensor CheckpointWeights::read_merged(const std::string& name) const {
  at::Tensor values = read(name).to(at::kFloat);
  const std::string matrix = name.substr(0, name.rfind('.'));
  if (!name.ends_with(".weight") || !shapes_.contains(matrix + models::kAdapterDown)) return values;
  const at::NoGradGuard no_grad;
  const double scale = models::adapter_of(*source_.config.lora, matrix)->scale;
  const at::Tensor down = checkpoint_.read(matrix + models::kAdapterDown);
  const at::Tensor up = checkpoint_.read(matrix + models::kAdapterUp);
  const at::Tensor product = at::mm(up, down).mul_(scale);
  return values.add_(models::family_of(source_.config).input_first ? product.t() : product);
}

planner::ModelWeights::Origin CheckpointWeights::origin(const std::string& name) const {
  return model_ ? model_->origin(name) : planner::ModelWeights::Origin{name, at::kFloat};
}

}  // namespace strait::app
