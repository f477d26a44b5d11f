#pragma once

#include <ATen/core/Tensor.h>

#include <map>
#include <memory>
#include <optional>
#include <string>

#include "framework/tensors/checkpoint_reader.h"
#include "framework/tensors/weight_files.h"
#include "launcher/plan/plan.h"
#include "models/model_config.h"

namespace strait::planner {

// The weights that a run starts from, by the model's parameter names: from a Hugging Face directory
// or from another run's checkpoint.
class ModelWeights {
 public:
  // Compares names and shapes with the model's and reads no values. TensorMismatch, StoreError.
  // UserError: the other run has no weights of its own.
  ModelWeights(const recipe::Recipe::Model& source, const models::ModelConfig& config);

  // UserError: values are not finite.
  at::Tensor read(const std::string& name) const;

  // Where a tensor is stored, and its type there.
  struct Origin {
    std::string name;
    at::ScalarType type = at::kFloat;
  };
  Origin origin(const std::string& name) const;

 private:
  std::optional<tensors::WeightFiles> files_;
  std::map<std::string, std::string> in_file_;
  std::optional<tensors::CheckpointReader> checkpoint_;
};

// UserError: a file of a tied model holds a projection in addition to the table, with other values,
// so the user has to say whether the model is tied. Reads a few rows of both.
void check_tied_projection(const recipe::Recipe::Model& source, const models::ModelConfig& config);

// The trained tensors of a PEFT directory, by the model's parameter names.
class AdapterWeights {
 public:
  // Reads names and shapes. TensorMismatch lists missing, surplus and misshapen tensors.
  AdapterWeights(const std::string& directory, const models::ModelConfig& config);

  at::Tensor read(const std::string& name) const;

 private:
  std::optional<tensors::SafetensorsReader> file_;
  std::map<std::string, std::string> in_file_;
};

// A recipe in which the run that it takes weights from is replaced by that run's newest checkpoint.
struct ChosenWeights {
  recipe::Recipe recipe;
  std::string warning;  // names a newer checkpoint that was skipped; empty: none
};
ChosenWeights with_chosen_checkpoint(recipe::Recipe recipe);

}  // namespace strait::planner
