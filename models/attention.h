#pragma once

#include <ATen/core/Tensor.h>

#include "models/pass.h"

namespace strait::models {

struct AttentionInputs {
  at::Tensor query;  // [rows, heads, length, width]
  at::Tensor key;
  at::Tensor value;
};

struct AttentionOptions {
  double scale = 1;
  double dropout = 0;  // of the probabilities, in training
  int layer = 0;       // global: names the dropout mask and the place in the cache
  int site = 0;
};

// Softmax attention under the pass's mask, over the cache's tokens too where there is one. Returns
// [rows, length, heads · width]. Uses libtorch's fused kernel wherever no probabilities need to be
// dropped.
at::Tensor attend(const AttentionInputs& inputs, const AttentionOptions& options, const Pass& pass);

}  // namespace strait::models
