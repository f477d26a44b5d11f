#pragma once

#include <cstdint>

#include "kernels/causal_attention.h"

// attention_to_cache() of one token of one sequence on the CPU, where operators would take longer
// than the sums.
namespace strait::kernels {

bool is_one_token(const AttentionHeads& heads);
at::Tensor attend_one_token(const AttentionHeads& heads, const AttentionRules& rules);

namespace cpu {

// A token's query and the keys and values that it sees, in float32, or in int8 with a scale for the
// vector of each token and head (quantized_heads.h). Consecutive query heads share a key head.
template <class T>
struct CacheAttention {
  const float* query = nullptr;         // [heads, width]
  const T* keys = nullptr;              // [tokens, key heads, width]
  const T* values = nullptr;            // [tokens, key heads, width]
  const float* key_scales = nullptr;    // [tokens, key heads]; null in float32
  const float* value_scales = nullptr;  // the same
  const float* sinks = nullptr;         // [heads]; null: none
  float* result = nullptr;              // [heads, width]
  std::int64_t tokens = 0;
  std::int64_t heads = 0;
  std::int64_t key_heads = 0;
  std::int64_t width = 0;
  float scale = 1;
  float softcap = 0;  // 0: none
};
// In one thread: the order of sums depends on the sizes and the instruction set.
void cache_attention(const CacheAttention<float>& all);
void cache_attention(const CacheAttention<std::int8_t>& all);

}  // namespace cpu
}  // namespace strait::kernels
