#pragma once

#include <cstdint>

#include "models/activation.h"

namespace strait::models {

class ConfigReader;

// The fields of a gpt2 config.json that change what is computed, with the defaults that an absent
// field means.
struct Gpt2Config {
  std::int64_t vocabulary = 50257;
  std::int64_t positions = 1024;
  std::int64_t hidden = 768;
  std::int64_t blocks = 12;
  std::int64_t heads = 12;
  std::int64_t inner = 3072;  // absent: four times hidden
  Activation activation = Activation::gelu_tanh;
  double residual_dropout = 0.1;
  double embedding_dropout = 0.1;
  double attention_dropout = 0.1;
  double norm_epsilon = 1e-5;
  double initializer_range = 0.02;
  bool scale_by_width = true;         // scores times 1/√(hidden/heads)
  bool scale_by_block_index = false;  // and divided by the block's global number, from one
  bool tied = true;

  std::int64_t head_width() const { return hidden / heads; }
};

Gpt2Config read_gpt2_config(const ConfigReader& reader);

}  // namespace strait::models
