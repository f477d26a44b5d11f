#include "models/model_description.h"

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
  return family_of(config).describe(config, question);
}

}  // namespace strait::models
