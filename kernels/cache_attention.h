#pragma once

#include <cstdint>

namespace strait::kernels::cpu {

// A token's query and the keys and values that it sees, in float32; consecutive query heads share a
// key head.
struct CacheAttention {
  const float* query = nullptr;   // [heads, width]
  const float* keys = nullptr;    // [tokens, key heads, width]
  const float* values = nullptr;  // [tokens, key heads, width]
  const float* sinks = nullptr;   // [heads]; null: none
  float* result = nullptr;        // [heads, width]
  std::int64_t tokens = 0;
  std::int64_t heads = 0;
  std::int64_t key_heads = 0;
  std::int64_t width = 0;
  float scale = 1;
  float softcap = 0;  // 0: none
};
// In one thread: the order of sums depends on the sizes and the instruction set.
void cache_attention(const CacheAttention& all);

}  // namespace strait::kernels::cpu
