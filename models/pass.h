#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include "kernels/dropout.h"

namespace strait::models {

class KeyValueCache;

// What all layers must know of the micro-batch that runs through them. A value: keep it with the
// micro-batch to run a forward again.
struct Pass {
  at::Tensor positions;       // int64 [rows, length]
  at::Tensor attention_mask;  // bool [rows, 1, length, length], true: may look; undefined: causal
  std::uint64_t seed = 0;
  std::uint64_t step = 0;
  std::uint64_t micro_batch = 0;
  bool training = false;           // dropout is on
  KeyValueCache* cache = nullptr;  // generation: keys and values of the tokens before; borrowed

  kernels::DropoutKey dropout_key(int layer, int site) const;
};

// For packed rows: `documents` holds the lengths of each row's documents; what they leave of
// `length` is padding at the end. Positions restart in every document, attention stays inside it,
// and padding looks at itself only. Where no row has a second document there is no mask: plain
// causal attention gives every token that is not padding the same.
Pass make_pass(const std::vector<std::vector<std::int64_t>>& documents, std::int64_t length,
               at::Device device = at::kCPU);

// For generation: `count` tokens of each row that follow what `cache` holds.
Pass make_pass(KeyValueCache& cache, std::int64_t rows, std::int64_t count,
               at::Device device = at::kCPU);

}  // namespace strait::models
