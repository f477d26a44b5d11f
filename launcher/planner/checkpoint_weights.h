#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "framework/tensors/checkpoint_reader.h"
#include "framework/tensors/safetensors_reader.h"
#include "launcher/planner/model_weights.h"
#include "models/model_config.h"
#include "models/model_description.h"

namespace strait::planner {

// The parameters of a run's checkpoint. Tensors that are not trained are read from the model that
// the run started from. That model is opened only when it is needed, so a checkpoint that holds
// everything can be read without it. The constructor reads no values.
class CheckpointWeights {
 public:
  CheckpointWeights(const recipe::Recipe& recipe, models::ModelConfig config,
                    const std::filesystem::path& checkpoint);

  // The value before quantisation. StoreError: the tensor is not trained and is not the one that
  // the run was trained with. This is checked only if the checkpoint's hashes of frozen tensors are
  // on this host.
  at::Tensor read(const std::string& name) const;
  // The value that the run computes with: float32, dequantised if the matrix is quantised, and with
  // the product of its adapter added if it has one.
  at::Tensor read_merged(const std::string& name) const;
  // Name and type of the tensor in the files that the run started from.
  ModelWeights::Origin origin(const std::string& name) const;

 private:
  const ModelWeights& model() const;
  void check_frozen(const models::TensorShape& tensor, const at::Tensor& values) const;

  const recipe::Recipe::Model source_;
  const models::ModelConfig config_;
  const std::uint64_t seed_;  // of random initial values
  tensors::CheckpointReader checkpoint_;
  std::vector<std::unique_ptr<tensors::SafetensorsReader>> with_hashes_;  // of frozen tensors
  mutable std::once_flag opened_;
  mutable std::unique_ptr<const ModelWeights> model_;
  std::map<std::string, models::TensorShape> shapes_;
};

}  // namespace strait::planner
