#pragma once

#include <ATen/ATen.h>
#include <torch/csrc/autograd/autograd.h>

#include "kernels/random.h"
#include "models/decoder.h"
#include "models/model.h"
#include "tests/kernels/random_values.h"

namespace strait::models {

inline DecoderConfig gpt2_values(const std::string& fields) {
  const ModelConfig config = parse_config(R"({"model_type": "gpt2")" + fields + "}", "config.json");
  return std::any_cast<DecoderConfig>(config.values);
}

inline DecoderConfig tiny_values() {
  return gpt2_values(R"(, "vocab_size": 61, "n_positions": 32, "n_embd": 24, "n_layer": 4,
                        "n_head": 3, "n_inner": 40)");
}

inline DecoderConfig tiny_values_without_dropout() {
  DecoderConfig values = tiny_values();
  values.residual_dropout = 0;
  values.embedding_dropout = 0;
  values.attention_dropout = 0;
  return values;
}

inline LayerRange all_layers(const DecoderConfig& values) {
  return {0, static_cast<int>(values.blocks) + 1};
}

// Random values everywhere, so that no zero or one hides a mistake.
inline void fill_model(Model& model) {
  const at::NoGradGuard no_grad;
  for (const Parameter& parameter : model.parameters()) {
    at::Generator generator =
        kernels::keyed_generator(kernels::hash_name(parameter.name), at::kCPU);
    at::Tensor drawn = at::empty(parameter.value.sizes(), at::kFloat).normal_(0, 0.3, generator);
    if (parameter.name.find("ln_") != std::string::npos) drawn.add_(1);
    at::Tensor target = parameter.value;
    target.copy_(drawn);
  }
}

inline std::unique_ptr<Model> tiny_model(const DecoderConfig& values, LayerRange range,
                                         at::ScalarType type = at::kFloat) {
  auto model = make_model(ModelConfig{"gpt2", values}, range, type, at::kCPU);
  fill_model(*model);
  return model;
}

inline at::Tensor random_tokens(std::int64_t rows, std::int64_t length, std::uint64_t seed) {
  at::Generator generator = kernels::keyed_generator(seed, at::kCPU);
  return at::empty({rows, length}, at::kLong).random_(0, tiny_values().vocabulary, generator);
}

inline at::Tensor run_layers(const Model& model, at::Tensor values, const Pass& pass) {
  for (const auto& layer : model.layers()) values = layer->forward(values, pass);
  return values;
}

using kernels::largest_difference;

}  // namespace strait::models
