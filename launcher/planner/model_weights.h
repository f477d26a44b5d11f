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

// The weights that a run starts from, by the names of the model's parameters: those of a Hugging
// Face directory, or of another run's checkpoint.
class ModelWeights {
 public:
  // Reads names and shapes and compares them with the model's; reads no values. TensorMismatch,
  // StoreError; UserError where the other run has no weights of its own.
  ModelWeights(const recipe::Recipe::Model& source, const models::ModelConfig& config);

  // UserError where values are not finite.
  at::Tensor read(const std::string& name) const;

  // Where a tensor is, and its type there.
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

// A file that holds a tied model's projection beside its table, with other values: whether such a
// model is tied is for the user to say. UserError. Reads a few rows of both.
void check_tied_projection(const recipe::Recipe::Model& source, const models::ModelConfig& config);

// The trained tensors of a PEFT directory, by the names of the model's parameters.
class AdapterWeights {
 public:
  // Reads names and shapes. TensorMismatch lists what is missing, surplus or misshapen.
  AdapterWeights(const std::string& directory, const models::ModelConfig& config);

  at::Tensor read(const std::string& name) const;

 private:
  std::optional<tensors::SafetensorsReader> file_;
  std::map<std::string, std::string> in_file_;
};

// The recipe with the run that it takes weights from replaced by that run's newest checkpoint.
struct ChosenWeights {
  recipe::Recipe recipe;
  std::string warning;  // a newer checkpoint that had to be passed over; empty: none
};
ChosenWeights with_chosen_checkpoint(recipe::Recipe recipe);

}  // namespace strait::planner
