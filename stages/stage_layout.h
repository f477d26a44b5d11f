#pragma once

#include <ATen/core/Tensor.h>

#include <filesystem>

#include "framework/sync/layout.h"
#include "models/model_description.h"

namespace strait::stages {

// The layout of the trained weights that a stage with these chunks owns, in order. A tied weight
// belongs to the stage of the LM head; it is marked as tied if the embedding is on another stage.
// Allocates no tensors, so that plans can use it.
sync::Layout stage_layout(const models::ModelDescription& model,
                          const std::vector<models::LayerRange>& chunks);

// One contiguous tensor over a layout, with views in the parameters' shapes. Everything that a step
// changes is in such tensors, so that replicas sync it without copying.
class FlatTensor {
 public:
  // Zero. With `disk_file` in a file on the disk, see tensors/disk_tensor.h.
  FlatTensor(const sync::Layout& layout, const at::TensorOptions& options,
             at::ScalarType type = at::kFloat, const std::filesystem::path& disk_file = {});

  at::Tensor of(const sync::Piece& piece) const;  // a view
  const at::Tensor& whole() const { return whole_; }

 private:
  at::Tensor whole_;
};

}  // namespace strait::stages
