#pragma once

#include "models/layer.h"
#include "models/model_config.h"
#include "models/model_description.h"

namespace strait::models {

// A weight that embedding and head share. Each side is an autograd leaf with its own gradient. The
// gradients are summed separately, and the caller adds them once per step. Both sides share memory
// if they are in this process.
struct TiedWeight {
  std::string name;      // empty: nothing is tied
  at::Tensor embedding;  // undefined: on another stage
  at::Tensor head;       // undefined: on another stage
  bool trained = true;
  // The row of `embedding` that gets no gradient; -1: none. Whoever renumbers the rows sets it.
  std::shared_ptr<std::int64_t> padding_row = std::make_shared<std::int64_t>(-1);
};

// Consecutive layers of a model: all of them, or those of one stage. Other layers have no memory
// here.
class Model {
 public:
  // `layers`: the layers of `range`, in order.
  Model(LayerRange range, std::vector<std::unique_ptr<Layer>> layers, TiedWeight tied);

  LayerRange range() const { return range_; }
  const std::vector<std::unique_ptr<Layer>>& layers() const { return layers_; }
  Layer& layer(int index) const;  // by global index

  // Parameters of all layers, in an order that does not depend on the partition.
  std::vector<Parameter> parameters() const;

  Head* head() const { return head_; }  // null: on another stage
  const TiedWeight& tied() const { return tied_; }

 private:
  LayerRange range_;
  std::vector<std::unique_ptr<Layer>> layers_;
  Head* head_ = nullptr;
  TiedWeight tied_;
};

// Makes only the layers of `range` (inclusive). Load or initialise their parameters before use.
std::unique_ptr<Model> make_model(const ModelConfig& config, LayerRange range, at::ScalarType type,
                                  at::Device device);

}  // namespace strait::models
