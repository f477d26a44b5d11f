#include "models/model.h"

#include <c10/util/Exception.h>

#include "models/families.h"

namespace strait::models {

Model::Model(LayerRange range, std::vector<std::unique_ptr<Layer>> layers, TiedWeight tied)
    : range_(range), layers_(std::move(layers)), tied_(std::move(tied)) {
  TORCH_INTERNAL_ASSERT(!layers_.empty() && layers_.front()->index() == range.first &&
                            layers_.back()->index() == range.last,
                        "a model of layers ", range.first, " to ", range.last, " was given ",
                        layers_.size(), " others");
  head_ = dynamic_cast<Head*>(layers_.back().get());
}

Layer& Model::layer(int index) const {
  TORCH_INTERNAL_ASSERT(index >= range_.first && index <= range_.last, "layer ", index,
                        " of a model that has ", range_.first, " to ", range_.last);
  return *layers_[static_cast<std::size_t>(index - range_.first)];
}

std::vector<Parameter> Model::parameters() const {
  std::vector<Parameter> all;
  for (const std::unique_ptr<Layer>& layer : layers_) {
    all.insert(all.end(), layer->parameters().begin(), layer->parameters().end());
  }
  return all;
}

std::unique_ptr<Model> make_model(const ModelConfig& config, LayerRange range, at::ScalarType type,
                                  at::Device device) {
  return family_of(config).make(config, range, type, device);
}

}  // namespace strait::models
