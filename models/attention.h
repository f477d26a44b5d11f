#pragma once

#include <ATen/core/Tensor.h>

#include "kernels/causal_attention.h"
#include "models/pass.h"

namespace strait::models {

// Queries of position p are multiplied by 1 + beta · log(1 + ⌊p / period⌋).
struct QueryGrowth {
  double beta = 0;  // 0: they are not
  double period = 0;
};
at::Tensor grown(const at::Tensor& queries, const QueryGrowth& growth, const Pass& pass);

struct AttentionOptions {
  double scale = 1;
  double dropout = 0;       // of the probabilities, in training
  int layer = 0;            // global: selects the dropout mask and the layer's part of the cache
  std::int64_t window = 0;  // keys that a query sees, including its own; 0: all before it
  double softcap = 0;       // scores become softcap · tanh(score / softcap); 0: unchanged
};

// Causal softmax attention inside the documents of the pass, over the tokens of the cache if there
// is one, and over those of earlier slices. Returns [rows, length, heads · width]; zero for
// padding.
at::Tensor attend(const kernels::AttentionHeads& inputs, const AttentionOptions& options,
                  const Pass& pass);

}  // namespace strait::models
