#include "launcher/planner/checkpoint_weights.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <optional>
#include <utility>

#include "framework/store/checkpoint.h"
#include "framework/store/store_error.h"
#include "kernels/quantized_matrix.h"
#include "models/families.h"
#include "models/initialize.h"
#include "stages/stage_state.h"

namespace strait::planner {
namespace {

// The values with which training computes.
at::Tensor dequantized(const at::Tensor& values, kernels::MatrixFormat format,
                       const std::string& name) {
  models::Parameter matrix{name, values};
  matrix.quantized =
      kernels::make_quantized_matrix({format, values.size(0), values.size(1)}, at::kCPU);
  models::assign(matrix, values);
  at::Tensor read = at::empty_like(values);
  kernels::dequantize_matrix(*matrix.quantized, read);
  return read;
}

// The files of a checkpoint that hold hashes of frozen tensors. They are not part of its weights,
// so they may be missing on this host or damaged; then nothing is compared.
std::vector<std::unique_ptr<tensors::SafetensorsReader>> files_with_hashes(
    const tensors::CheckpointReader& checkpoint) {
  std::vector<std::unique_ptr<tensors::SafetensorsReader>> found;
  for (const store::ShardFile& file : store::files_of(checkpoint.manifest(), store::Part::all)) {
    const std::filesystem::path path = checkpoint.path() / file.name;
    if (!file.name.ends_with(".safetensors") || !store::has_size(path, file.size)) continue;
    try {
      auto reader = std::make_unique<tensors::SafetensorsReader>(path);
      const bool any = std::ranges::any_of(reader->tensors(), [](const store::TensorInfo& tensor) {
        return tensor.name.starts_with(stages::frozen_hash_name(""));
      });
      if (any) found.push_back(std::move(reader));
    } catch (const store::StoreError&) {
      continue;
    }
  }
  return found;
}

}  // namespace

CheckpointWeights::CheckpointWeights(const recipe::Recipe& recipe, models::ModelConfig config,
                                     const std::filesystem::path& checkpoint)
    : source_(recipe.model),
      config_(std::move(config)),
      seed_(static_cast<std::uint64_t>(recipe.seed)),
      checkpoint_(checkpoint, store::Verify::sizes, store::Part::weights) {
  for (const models::LayerCost& layer : models::describe(config_).layers) {
    for (const models::TensorShape& tensor : layer.tensors) shapes_.emplace(tensor.name, tensor);
  }
  if (config_.lora != nullptr) with_hashes_ = files_with_hashes(checkpoint_);
}

const ModelWeights& CheckpointWeights::model() const {
  std::call_once(opened_, [this] { model_ = std::make_unique<ModelWeights>(source_, config_); });
  return *model_;
}

// Compares the hash as a stage does when it resumes.
void CheckpointWeights::check_frozen(const models::TensorShape& tensor,
                                     const at::Tensor& values) const {
  const std::string name = stages::frozen_hash_name(tensor.name);
  const auto holder = std::ranges::find_if(
      with_hashes_, [&](const auto& file) { return file->find(name) != nullptr; });
  if (holder == with_hashes_.end()) return;
  at::Tensor hash = (*holder)->read(name);
  // This host has only parts of the file.
  if (hash.eq(0).any().item<bool>()) return;
  const bool wide = source_.dtype != recipe::Dtype::bfloat16;
  at::TensorOptions options(wide ? at::kFloat : at::kBFloat16);
  if (tensor.quantization) options = options.device(at::kMeta);
  models::Parameter frozen{tensor.name, at::empty(tensor.shape, options)};
  frozen.trained = false;
  if (tensor.quantization) {
    frozen.quantized = kernels::make_quantized_matrix(
        {*tensor.quantization, values.size(0), values.size(1)}, at::kCPU);
  }
  models::assign(frozen, values);
  stages::check_hashes({frozen}, [&](const std::string&) { return hash; });
}

at::Tensor CheckpointWeights::read(const std::string& name) const {
  const models::TensorShape& tensor = shapes_.at(name);
  if (tensor.trained) return checkpoint_.read(name);
  if (source_.weights != recipe::Weights::random) {
    at::Tensor values = model().read(name);
    check_frozen(tensor, values);
    return values;
  }
  const models::Parameter drawn{name, at::empty(tensor.shape)};
  models::initialize(drawn, config_, seed_);
  return drawn.value;
}

at::Tensor CheckpointWeights::read_merged(const std::string& name) const {
  at::Tensor values = read(name).to(at::kFloat);
  if (const auto format = shapes_.at(name).quantization)
    values = dequantized(values, *format, name);
  const std::string matrix = name.substr(0, name.rfind('.'));
  if (!name.ends_with(".weight") || !shapes_.contains(matrix + models::kAdapterDown)) return values;
  const at::NoGradGuard no_grad;
  const double scale = models::adapter_of(*config_.lora, matrix)->scale;
  const at::Tensor down = checkpoint_.read(matrix + models::kAdapterDown);
  const at::Tensor up = checkpoint_.read(matrix + models::kAdapterUp);
  const at::Tensor product = at::mm(up, down).mul_(scale);
  return values.add_(models::family_of(config_).input_first ? product.t() : product);
}

ModelWeights::Origin CheckpointWeights::origin(const std::string& name) const {
  if (source_.weights == recipe::Weights::random) return {name, at::kFloat};
  // Checkpoints of two runs have the same names and types. The other run may have pruned the
  // checkpoint that this run read.
  const store::TensorInfo* const own = checkpoint_.find(name);
  if (source_.weights == recipe::Weights::run && own != nullptr) {
    return {name, tensors::scalar_type(own->dtype)};
  }
  return model().origin(name);
}

}  // namespace strait::planner
