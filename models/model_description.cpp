#include "models/model_description.h"

#include <ATen/ATen.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "kernels/cross_entropy.h"
#include "kernels/quantized_matrix.h"
#include "models/families.h"

namespace strait::models {
namespace {

std::string module_of(const std::string& tensor) { return tensor.substr(0, tensor.rfind('.')); }

std::string last_part(const std::string& name) { return name.substr(name.rfind('.') + 1); }

// Number of blocks, without embedding and head.
std::int64_t blocks_of(const ModelDescription& model) { return std::ssize(model.layers) - 2; }

enum class Among { blocks, all };

// Last parts of the names of matrices.
std::set<std::string> matrices(const ModelDescription& model, Among among) {
  std::set<std::string> names;
  for (std::int64_t i = 0; i < std::ssize(model.layers); ++i) {
    if (among == Among::blocks && (i == 0 || i > blocks_of(model))) continue;
    for (const TensorShape& tensor : model.layers[static_cast<std::size_t>(i)].tensors) {
      if (tensor.adapter || tensor.shape.size() != 2) continue;
      names.insert(last_part(module_of(tensor.name)));
    }
  }
  return names;
}

[[noreturn]] void refuse(const ModelDescription& model, Among among, const std::string& what) {
  throw ConfigError(fmt::format("{}; matrices of {} {} model are called {}", what,
                                among == Among::blocks ? "the blocks of this" : "this",
                                model.family, fmt::join(matrices(model, among), ", ")));
}

void check_blocks(const ModelDescription& model, const Lora& lora) {
  const std::int64_t count = blocks_of(model);
  const auto absent =
      std::ranges::find_if(lora.blocks, [&](std::int64_t block) { return block >= count; });
  if (absent == lora.blocks.end()) return;
  throw ConfigError(fmt::format(
      "model.lora.layers (of an adapter: layers_to_transform) names block {}; the model has 0 to "
      "{}",
      *absent, count - 1));
}

// Matrices with an adapter, and tensors of all experts with adapters.
std::vector<std::string> adapted_matrices(const ModelDescription& model, const Lora& lora) {
  std::vector<std::string> adapted;
  for (const LayerCost& layer : model.layers) {
    for (const TensorShape& tensor : layer.tensors) {
      if (!tensor.adapter || !tensor.name.ends_with(kAdapterDown)) continue;
      const std::string matrix = module_of(module_of(tensor.name));
      const std::string joined = lora.parameters.empty() ? "" : tensor_of_experts(matrix);
      adapted.push_back(joined.empty() ? matrix : joined);
    }
  }
  return adapted;
}

// Every setting that names something must have found it. A misspelt one would silently train less.
void check_adapters(const ModelDescription& model, const Lora& lora) {
  check_blocks(model, lora);
  const std::vector<std::string> adapted = adapted_matrices(model, lora);
  std::vector<std::string> modules;
  for (const LayerCost& layer : model.layers) {
    for (const TensorShape& tensor : layer.tensors) {
      if (!tensor.adapter) modules.push_back(module_of(tensor.name));
    }
  }
  const auto has = [](const std::vector<std::string>& names, const std::string& part) {
    return std::ranges::any_of(
        names, [&](const std::string& name) { return ends_with_module(name, part); });
  };
  for (const std::string& target : lora.targets) {
    if (has(adapted, target)) continue;
    const bool of_experts = std::ranges::any_of(modules, [&](const std::string& name) {
      return ends_with_module(name, target) && !tensor_of_experts(name).empty();
    });
    refuse(model, Among::blocks,
           fmt::format("LoRA's target \"{}\" is not a matrix of a block{}", target,
                       of_experts ? ", but of experts, which target_parameters names if the "
                                    "files have all experts of a block in one tensor"
                                  : ""));
  }
  for (const std::string& tensor : lora.parameters) {
    if (!has(adapted, tensor)) {
      refuse(model, Among::blocks,
             fmt::format("LoRA's target parameter \"{}\" is not the tensor of all experts of a "
                         "block, such as mlp.experts.down_proj",
                         tensor));
    }
  }
  if (adapted.empty()) refuse(model, Among::blocks, "LoRA's targets match no matrix of a block");
  check_patterns(lora, adapted);
  for (const std::string& saved : lora.saved) {
    if (!has(modules, saved)) {
      refuse(model, Among::all,
             fmt::format("LoRA's modules to save have \"{}\", which is none", saved));
    }
    const std::string& tied = model.layers.back().tied_to;
    if (!tied.empty() && (ends_with_module(module_of(tied), saved) || saved == "lm_head")) {
      refuse(model, Among::all,
             fmt::format("LoRA's modules to save have \"{}\", but embedding and head of this "
                         "model are one table, which PEFT would untie",
                         saved));
    }
  }
}

void add_quantized(const kernels::QuantizedMatrix& matrix, LayerCost& cost) {
  cost.tensors.back().quantization = matrix.shape.format;
  cost.quantized.parameters += matrix.shape.values();
  cost.quantized.bytes += bytes_of(matrix.shape);
  cost.quantized.largest_matrix = std::max(cost.quantized.largest_matrix, matrix.shape.values());
}

std::int64_t outputs_of(const LayerCost& layer, const std::string& matrix) {
  return std::ranges::find(layer.tensors, matrix + kAdapterNorms, &TensorShape::name)->elements();
}

// Adapters keep their inner values, and with dropout also their input and its mask. DoRA keeps the
// product that its norms scale; with dropout the matrix has two inputs.
void add_adapter_costs(ModelDescription& model, const Lora& lora, const CostQuestion& question) {
  for (LayerCost& layer : model.layers) {
    double saved = 0;
    for (const TensorShape& tensor : layer.tensors) {
      if (!tensor.adapter || !tensor.name.ends_with(kAdapterDown)) continue;
      std::int64_t bytes = tensor.shape[0] * question.bytes_per_value;
      if (lora.dropout > 0) bytes += tensor.shape[1] * (question.bytes_per_value + 1);
      saved += tensor.token_share * static_cast<double>(bytes);
      if (!lora.decomposed) continue;
      const std::string matrix = tensor.name.substr(0, tensor.name.rfind(kAdapterDown));
      const std::int64_t outputs = outputs_of(layer, matrix);
      saved += tensor.token_share * static_cast<double>(outputs * question.bytes_per_value);
      if (lora.dropout == 0) continue;
      layer.forward_flops_per_token +=
          2 * tensor.token_share * static_cast<double>(outputs * tensor.shape[1]);
    }
    layer.saved_bytes_per_token += std::llround(saved);
  }
}

// No backward runs below the first trained layer. Above it gradients pass frozen weights.
void set_backward_factors(ModelDescription& model) {
  const int first = model.first_trained_layer();
  for (int i = 0; i < static_cast<int>(model.layers.size()); ++i) {
    LayerCost& layer = model.layers[static_cast<std::size_t>(i)];
    if (i < first) {
      layer.backward_factor = 0;
      layer.saved_bytes_per_token = 0;
    } else if (layer.trained < layer.parameters) {
      layer.backward_factor = 1;
    }
  }
}

// Embedding and head have no matrix of that kind: the rows of a table are added immediately, and
// the gradient of the projection is computed with the loss.
void set_weight_gradient_costs(ModelDescription& model, std::int64_t bytes_per_value) {
  for (std::size_t i = 1; i + 1 < model.layers.size(); ++i) {
    LayerCost& layer = model.layers[i];
    double bytes = 0;
    for (const TensorShape& tensor : layer.tensors) {
      if (!tensor.trained || tensor.shape.size() != 2) continue;
      layer.weight_gradient_flops_per_token +=
          2.0 * tensor.token_share * static_cast<double>(tensor.elements());
      bytes += tensor.token_share *
               static_cast<double>((tensor.shape[0] + tensor.shape[1]) * bytes_per_value);
    }
    layer.weight_gradient_bytes_per_token = std::llround(bytes);
  }
}

}  // namespace

std::int64_t ModelDescription::parameters() const {
  std::int64_t sum = 0;
  for (const LayerCost& layer : layers) sum += layer.parameters;
  return sum;
}

std::int64_t ModelDescription::trained_parameters() const {
  std::int64_t sum = 0;
  for (const LayerCost& layer : layers) sum += layer.trained;
  return sum;
}

std::int64_t ModelDescription::cached_bytes(CacheFormat format) const {
  std::int64_t bytes = 0;
  for (const LayerCost& layer : layers) bytes += layer.cached.bytes(format);
  return bytes;
}

std::int64_t ModelDescription::logits_bytes(std::int64_t tokens) const {
  const std::int64_t width = layers.back().output_width;
  const std::int64_t rows = std::min(tokens, kernels::cross_entropy_rows(vocabulary, width));
  return 2 * rows * vocabulary * std::int64_t{sizeof(float)};
}

std::vector<TensorShape> ModelDescription::tensors() const {
  std::vector<TensorShape> all;
  for (const LayerCost& layer : layers) {
    std::ranges::copy_if(layer.tensors, std::back_inserter(all),
                         [](const TensorShape& tensor) { return !tensor.adapter; });
  }
  return all;
}

std::vector<TensorShape> ModelDescription::trained_tensors() const {
  std::vector<TensorShape> all;
  for (const LayerCost& layer : layers) {
    std::ranges::copy_if(layer.tensors, std::back_inserter(all), &TensorShape::trained);
  }
  return all;
}

int ModelDescription::first_trained_layer() const {
  for (std::size_t i = 0; i < layers.size(); ++i) {
    if (layers[i].trained > 0) return static_cast<int>(i);
  }
  return static_cast<int>(layers.size());
}

ModelDescription describe(const ModelConfig& config, const CostQuestion& question) {
  const Family& family = family_of(config);
  ModelDescription description = family.describe(config, question);
  // The layers themselves, made without memory, are the only source of shapes.
  const LayerRange all{0, static_cast<int>(description.layers.size()) - 1};
  const auto model = family.make(config, all, at::kBFloat16, at::kMeta);
  for (const auto& layer : model->layers()) {
    LayerCost& cost = description.layers[static_cast<std::size_t>(layer->index())];
    for (const Parameter& parameter : layer->parameters()) {
      if (!parameter.owned) {
        cost.tied_to = parameter.name;
        description.tied_trained = parameter.trained;
        description.tied_parameters = parameter.value.numel();
        continue;
      }
      cost.tensors.push_back(
          {parameter.name, parameter.value.sizes().vec(), parameter.trained, parameter.adapter});
      cost.tensors.back().token_share = parameter.token_share;
      cost.tensors.back().wide = parameter.value.scalar_type() == at::kFloat;
      if (parameter.quantized) add_quantized(*parameter.quantized, cost);
      cost.parameters += parameter.value.numel();
      if (parameter.trained) cost.trained += parameter.value.numel();
    }
  }
  if (config.lora != nullptr) {
    if (!config.lora->parameters.empty() && !family.names.joins_experts) {
      refuse(description, Among::blocks,
             "LoRA's target parameters are of families whose files have all experts of a block in "
             "one tensor; name matrices in targets");
    }
    if (!config.lora->parameters.empty() && config.lora->decomposed) {
      refuse(description, Among::blocks,
             "DoRA is of matrices that have names of their own, not of LoRA's target parameters; "
             "leave one of them out");
    }
    check_adapters(description, *config.lora);
    add_adapter_costs(description, *config.lora, question);
    set_backward_factors(description);
  }
  set_weight_gradient_costs(description, question.bytes_per_value);
  return description;
}

void check_pattern_use(const ModelDescription& model, const Lora& lora) {
  const std::vector<std::string> unused = unused_patterns(lora, adapted_matrices(model, lora));
  if (unused.empty()) return;
  refuse(model, Among::blocks,
         fmt::format("LoRA's {} fits no matrix that has an adapter", unused.front()));
}

}  // namespace strait::models
