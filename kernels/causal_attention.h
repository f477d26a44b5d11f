#pragma once

#include <vector>

#include "kernels/random.h"

namespace strait::kernels {

// Consecutive tokens of one row that attend to each other: a document of a packed row, or what a
// slice of the row has of it.
struct AttentionSpan {
  std::int64_t row = 0;
  std::int64_t begin = 0;  // among the queries
  std::int64_t length = 0;
  // Keys of the document before the span's first query. They are of earlier slices of the row, so
  // there are none where `begin` is not 0.
  std::int64_t past = 0;
};

struct AttentionRules {
  double scale = 1;
  std::int64_t window = 0;  // keys that a query sees, including its own; 0: all keys before it
  double softcap = 0;       // a score s becomes softcap · tanh(s / softcap); 0: unchanged
  double dropout = 0;       // of the probabilities
  DropoutKey dropout_key;
};

// The number of query heads may be a multiple of the number of key heads: consecutive query heads
// share one. The queries are those of the last tokens of the keys: query q of a row is at
// position q + (key length - length) among them.
struct AttentionHeads {
  at::Tensor query;  // [rows, length, heads, width]
  at::Tensor key;    // [rows, key length, key heads, width]
  at::Tensor value;
  // [heads], or undefined. One more score of each head: it takes part in the softmax and has no
  // value, so that the probabilities of the keys add up to less than 1.
  at::Tensor sinks{};
  // For attention_to_cache(): key and value are int8, with these scales (quantized_heads.h).
  // Undefined: they are not.
  at::Tensor key_scales{};
  at::Tensor value_scales{};
};

// Causal softmax attention inside each span, differentiable. A span's keys are those of its own
// tokens and of the `past` tokens before them; query i of the span sees the first past + i + 1 of
// them, and of these those in its window. Returns [rows, length, heads, width], zero for tokens
// outside all spans. Keys that no span has get a gradient of zero. Time and memory depend on the
// spans: there is no mask of a row, and no scores are kept for the backward; only a few rows of
// them exist at a time. On the CPU a span with a past has a mask of its queries and keys while it
// is computed. Softmax is computed in float32. The result depends on the inputs only, for any
// number of threads.
at::Tensor causal_attention(const AttentionHeads& heads, const std::vector<AttentionSpan>& spans,
                            const AttentionRules& rules);

// For generation: in every row the queries are the last tokens of the keys. Without gradients and
// dropout.
at::Tensor attention_to_cache(const AttentionHeads& heads, const AttentionRules& rules);

}  // namespace strait::kernels
