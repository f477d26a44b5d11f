#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>

#include "framework/tensors/checkpoint_reader.h"
#include "launcher/planner/model_weights.h"
#include "models/model_config.h"
#include "models/model_description.h"

namespace strait::planner {

// The parameters of a run's checkpoint. Those that are not trained are read from where the run has
// them. Opening reads no values.
class CheckpointWeights {
 public:
  CheckpointWeights(const recipe::Recipe& recipe, models::ModelConfig config,
                    const std::filesystem::path& checkpoint);

  // Before any quantising.
  at::Tensor read(const std::string& name) const;
  // What the run computes with: float32, of a quantised matrix the dequantised values, and with its
  // adapter's product added where it has one.
  at::Tensor read_merged(const std::string& name) const;
  // Name and type in the files that the run started from.
  ModelWeights::Origin origin(const std::string& name) const;

 private:
  const models::ModelConfig config_;
  const std::uint64_t seed_;  // of what is drawn
  tensors::CheckpointReader checkpoint_;
  std::optional<ModelWeights> model_;  // absent: drawn at random
  std::map<std::string, models::TensorShape> shapes_;
};

}  // namespace strait::planner
