#pragma once

#include <string>

#include "kernels/causal_attention.h"

namespace strait::kernels {

// The rows of a micro-batch as contiguous sequences for libtorch's flash attention; each sequence
// attends only to itself and to its past. Tokens outside all spans are cut into short sequences,
// whose results are discarded. Pure.
struct PackedSequences {
  // where each sequence begins among all tokens, and the number of tokens
  std::vector<std::int32_t> offsets;
  std::int64_t longest = 0;
  // The same of its keys among the packed keys: of each row the last `row_keys`, which are those of
  // the queries' tokens and the past of its first span.
  std::vector<std::int32_t> key_offsets;
  std::int64_t longest_keys = 0;
  std::vector<std::int64_t> row_keys;
  std::vector<AttentionSpan> padding;  // runs of tokens outside all spans
};
PackedSequences pack_sequences(const std::vector<AttentionSpan>& spans, std::int64_t rows,
                               std::int64_t length);

// Why the device does not run libtorch's flash attention; empty: it does. Tried once per device.
std::string no_flash_attention(at::Device device);

// Whether flash_attention() supports this: float16 or bfloat16 on a device that runs libtorch's
// operator, head widths of at most 256 that are a multiple of 8 and that every GPU supports, no cap
// and no dropout.
bool flash_attention_fits(const AttentionHeads& heads, const AttentionRules& rules);

// Like causal_attention(), by libtorch's flash attention; deterministic if libtorch is set to be.
// Does not wait for the device.
at::Tensor flash_attention(const AttentionHeads& heads, const std::vector<AttentionSpan>& spans,
                           const AttentionRules& rules);

}  // namespace strait::kernels
