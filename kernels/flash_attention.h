#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "kernels/causal_attention.h"

namespace strait::kernels {

// The rows of a micro-batch as libtorch's flash attention takes them: sequences one behind the
// other, each of which attends to itself only. What no span covers is cut into short ones, whose
// results are thrown away. Pure.
struct PackedSequences {
  std::vector<std::int32_t> offsets;  // where each begins among all tokens, and their number
  std::int64_t longest = 0;
  std::vector<AttentionSpan> padding;  // runs of tokens outside all spans
};
PackedSequences pack_sequences(const std::vector<AttentionSpan>& spans, std::int64_t rows,
                               std::int64_t length);

// Why that device does not run libtorch's flash attention; empty: it does. Tried once for each
// device.
std::string no_flash_attention(at::Device device);

// Whether flash_attention() computes this: float16 or bfloat16 on a device that runs libtorch's
// operator, heads of at most 256 values, a multiple of 8 that every GPU has, neither
// cap nor dropout.
bool flash_attention_fits(const AttentionHeads& heads, const AttentionRules& rules);

// As causal_attention(), by libtorch's flash attention, deterministically where libtorch is to be.
// Does not wait for the device.
at::Tensor flash_attention(const AttentionHeads& heads, const std::vector<AttentionSpan>& spans,
                           const AttentionRules& rules);

}  // namespace strait::kernels
