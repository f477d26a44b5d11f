#pragma once

#include "kernels/causal_attention.h"

namespace strait::kernels {

// The gated delta rule. Each head has a state [key width, width], zero at the start of a span, and
// computes for one token after the other, with q and k divided by their lengths:
//   S = exp(decay) · S;  S = S + k · (beta · (v - kᵀ · S))ᵀ;  result = Sᵀ · q / √(key width)
// The number of heads may be a multiple of the number of key heads: consecutive heads share one.
struct DeltaHeads {
  at::Tensor query;  // [rows, length, key heads, key width]
  at::Tensor key;
  at::Tensor value;  // [rows, length, heads, width]
  at::Tensor beta;   // [rows, length, heads]
  at::Tensor decay;  // [rows, length, heads], not above 0
};

// Differentiable. Returns [rows, length, heads, width], zero for tokens outside all spans. Computes
// chunks of a span by products of matrices, in float32; the backward computes them again, so only
// the inputs are kept. The result for a span depends on its own tokens only.
at::Tensor delta_rule(const DeltaHeads& heads, const std::vector<AttentionSpan>& spans);

// For generation: every row goes on from `state`, float32 [rows, heads, key width, width], which
// then is that after its last token. Without gradients.
at::Tensor continue_delta_rule(const DeltaHeads& heads, const at::Tensor& state);

// SiLU of the weighted sum of each channel's last tokens inside the span, differentiable. `input`
// is [rows, length, channels], `weight` a leaf [channels, 1, tokens], whose last is the token's
// own. Zero for tokens outside all spans. Sums are in float32.
at::Tensor causal_convolution(const at::Tensor& input, const at::Tensor& weight,
                              const std::vector<AttentionSpan>& spans);

}  // namespace strait::kernels
