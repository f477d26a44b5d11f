#pragma once

#include <ATen/core/Tensor.h>

#include <span>
#include <vector>

#include "framework/sync/layout.h"
#include "models/model_description.h"

namespace strait::stages {

// The flat space of the weights of a stage that has these chunks, in order: every parameter with a
// storage of its own, by its name. A tied weight whose other layer lives on another stage is a twin
// there and here. Nothing is allocated to know it, so plans can ask.
sync::Layout stage_layout(const models::ModelDescription& model,
                          const std::vector<models::LayerRange>& chunks);

// One flat tensor over a layout, and the pieces of it as the model sees them. Everything that a
// step changes lives in such tensors, so that replicas can agree on it without copying.
class FlatTensor {
 public:
  FlatTensor(const sync::Layout& layout, const at::TensorOptions& options);  // zero

  at::Tensor of(const sync::Piece& piece) const;  // shares the memory
  std::span<float> values() const;

 private:
  at::Tensor whole_;
};

}  // namespace strait::stages
