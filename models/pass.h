#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <vector>

#include "kernels/causal_attention.h"
#include "kernels/dropout.h"
#include "models/rotary.h"

namespace strait::models {

class KeyValueCache;

// What all layers must know of the micro-batch that runs through them. A value: keep it with the
// micro-batch to run a forward again.
struct Pass {
  at::Tensor positions;  // int64 [rows, length], on the CPU whatever the device of the layers
  // Tokens attend inside these; what is in none of them is padding. Not used with a cache.
  std::vector<kernels::AttentionSpan> documents;
  std::shared_ptr<RotaryTables> rotary;  // of `positions`, filled by the layers
  std::uint64_t seed = 0;
  std::uint64_t step = 0;
  std::uint64_t micro_batch = 0;
  bool training = false;           // dropout is on
  KeyValueCache* cache = nullptr;  // generation: keys and values of the tokens before; borrowed

  kernels::DropoutKey dropout_key(int layer, int site) const;
};

// For packed rows: `documents` holds the lengths of each row's documents; what they leave of
// `length` is padding at the end. Positions restart in every document and attention stays inside
// it.
Pass make_pass(const std::vector<std::vector<std::int64_t>>& documents, std::int64_t length);

// For generation: `count` tokens of each row that follow what `cache` holds.
Pass make_pass(KeyValueCache& cache, std::int64_t rows, std::int64_t count);

}  // namespace strait::models
