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

// The parameters of a run's checkpoint. Those that are not trained are read from where the run has
// them; that model is not looked at before it is needed, so a checkpoint that holds everything can
// be read without it. Opening reads no values.
class CheckpointWeights {
 public:
  CheckpointWeights(const recipe::Recipe& recipe, models::ModelConfig config,
                    const std::filesystem::path& checkpoint);

  // Before any quantising. StoreError: the tensor is not trained, and is another one than the run
  // was trained with; found where the checkpoint's hashes of such tensors are here.
  at::Tensor read(const std::string& name) const;
  // What the run computes with: float32, of a quantised matrix the dequantised values, and with its
  // adapter's product added where it has one.
  at::Tensor read_merged(const std::string& name) const;
  // Name and type in the files that the run started from.
  ModelWeights::Origin origin(const std::string& name) const;

 private:
  const ModelWeights& model() const;
  void check_frozen(const models::TensorShape& tensor, const at::Tensor& values) const;

  const recipe::Recipe::Model source_;
  const models::ModelConfig config_;
  const std::uint64_t seed_;  // of what is drawn
  tensors::CheckpointReader checkpoint_;
  std::vector<std::unique_ptr<tensors::SafetensorsReader>> with_hashes_;  // of frozen tensors
  mutable std::once_flag opened_;
  mutable std::unique_ptr<const ModelWeights> model_;
  std::map<std::string, models::TensorShape> shapes_;
};

}  // namespace strait::planner
