#pragma once

#include "framework/tensors/safetensors_reader.h"
#include "framework/tensors/weight_files.h"
#include "launcher/recipe/plan.h"
#include "models/model_config.h"
#include "models/model_description.h"
#include "models/tensor_names.h"

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
    std::string stored;  // the tensor of the files that it is, or is a part of
  };
  Origin origin(const std::string& name) const;

 private:
  std::optional<tensors::WeightFiles> files_;
  std::map<std::string, std::string> in_file_;
  std::optional<tensors::CheckpointReader> checkpoint_;
};

// UserError: a file of a tied model holds a projection in addition to the table, with other values,
// so the user has to say whether the model is tied. Reads all rows of both, as training may have
// changed only a few; most files hold only one, and of others the table is read afterwards anyway.
void check_tied_projection(const recipe::Recipe::Model& source, const models::ModelConfig& config);

// UserError: train.preference.reference is another architecture than the model, or its config.json
// differs where this changes what is computed. TensorMismatch. Reads only what
// check_tied_projection() does.
void check_reference(const recipe::Recipe& recipe, const std::string& model_config,
                     const models::ModelConfig& config);

// The trained tensors of a PEFT directory, by the model's parameter names.
class AdapterWeights {
 public:
  // Reads names and shapes. TensorMismatch lists missing, surplus and misshapen tensors.
  AdapterWeights(const std::string& directory, const models::ModelConfig& config);

  at::Tensor read(const std::string& name) const;

 private:
  std::optional<tensors::SafetensorsReader> file_;
  std::map<std::string, models::AdapterTensor> in_file_;
  mutable std::map<std::string, at::Tensor> of_experts_;  // of one block: parts are read from them
};

// A recipe in which the run that it takes weights from is replaced by that run's newest checkpoint.
struct ChosenWeights {
  recipe::Recipe recipe;
  std::string warning;  // names a newer checkpoint that was skipped; empty: none
};
ChosenWeights with_chosen_checkpoint(recipe::Recipe recipe);

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
