#pragma once

#include <ATen/core/Tensor.h>

#include <map>
#include <optional>
#include <string>

#include "framework/tensors/checkpoint_reader.h"
#include "launcher/app/whole_model.h"
#include "launcher/planner/model_weights.h"
#include "models/model_description.h"

namespace strait::app {

// The parameters of a run's checkpoint. Those that are not trained are read from where the run has
// them. Opening reads no values.
class CheckpointWeights {
 public:
  // Borrows `source`.
  explicit CheckpointWeights(const RunCheckpoint& source);

  at::Tensor read(const std::string& name) const;
  // Float32, and with its adapter's product added where it has one.
  at::Tensor read_merged(const std::string& name) const;
  // Name and type in the files that the run started from.
  planner::ModelWeights::Origin origin(const std::string& name) const;

 private:
  const RunCheckpoint& source_;
  tensors::CheckpointReader checkpoint_;
  std::optional<planner::ModelWeights> model_;  // absent: drawn at random
  std::map<std::string, models::TensorShape> shapes_;
};

}  // namespace strait::app
