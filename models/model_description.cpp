#include "models/model_description.h"

#include <ATen/ATen.h>

#include "models/families.h"

namespace strait::models {

std::int64_t ModelDescription::parameters() const {
  std::int64_t sum = 0;
  for (const LayerCost& layer : layers) sum += layer.parameters;
  return sum;
}

std::vector<TensorShape> ModelDescription::tensors() const {
  std::vector<TensorShape> all;
  for (const LayerCost& layer : layers) {
    all.insert(all.end(), layer.tensors.begin(), layer.tensors.end());
  }
  return all;
}

ModelDescription describe(const ModelConfig& config, const CostQuestion& question) {
  const Family& family = family_of(config);
  ModelDescription description = family.describe(config, question);
  // Shapes have one source: the layers themselves, made without memory.
  const LayerRange all{0, static_cast<int>(description.layers.size()) - 1};
  const auto model = family.make(config, all, at::kFloat, at::kMeta);
  for (const auto& layer : model->layers()) {
    LayerCost& cost = description.layers[static_cast<std::size_t>(layer->index())];
    for (const Parameter& parameter : layer->parameters()) {
      if (!parameter.owned) {
        cost.tied_to = parameter.name;
        description.tied_parameters = parameter.value.numel();
        continue;
      }
      cost.tensors.push_back({parameter.name, parameter.value.sizes().vec()});
      cost.parameters += parameter.value.numel();
    }
  }
  return description;
}

}  // namespace strait::models
