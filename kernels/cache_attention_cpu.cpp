#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cache_attention_cpu.cpp"
#include <hwy/foreach_target.h>  // must come before highway.h
#include <hwy/highway.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

// clang-format off: highway.h comes first
#include <hwy/contrib/math/math-inl.h>
// clang-format on

#include "kernels/cache_attention.h"
#include "kernels/lanes-inl.h"

HWY_BEFORE_NAMESPACE();
namespace strait::kernels::HWY_NAMESPACE {

// Vectors in either format; lanes from `count` on are zero.
HWY_INLINE Vector load_values(const float* from, std::int64_t count) {
  return load_upto(from, count);
}
HWY_INLINE Vector load_values(const std::int8_t* from, std::int64_t count) {
  const hn::Rebind<std::int8_t, Lanes> bytes;
  std::int8_t some[kMostLanes] = {};
  if (count < lane_count()) {
    std::memcpy(some, from, static_cast<std::size_t>(count));
    from = some;
  }
  return hn::ConvertTo(Lanes(), hn::PromoteTo(CountLanes(), hn::LoadU(bytes, from)));
}

template <class T>
HWY_INLINE float dot_of(const float* left, const T* right, std::int64_t width) {
  Vector sum = hn::Zero(Lanes());
  std::int64_t i = 0;
  for (; i + lane_count() <= width; i += lane_count()) {
    sum = hn::MulAdd(load_lanes(left + i), load_values(right + i, lane_count()), sum);
  }
  if (i < width) {
    sum = hn::MulAdd(load_upto(left + i, width - i), load_values(right + i, width - i), sum);
  }
  return sum_of(sum);
}

// Scores to what they weigh, not yet divided by the sum, which is returned. `weights` has room for
// whole vectors.
HWY_INLINE float weigh_scores(std::int64_t count, float most, float* weights) {
  Vector sum = hn::Zero(Lanes());
  const Vector bound = hn::Set(Lanes(), most);
  for (std::int64_t i = 0; i < count; i += lane_count()) {
    const Vector weight = hn::Exp(Lanes(), hn::Sub(load_lanes(weights + i), bound));
    store_lanes(weight, weights + i);
    sum = hn::Add(sum, load_upto(weights + i, count - i));
  }
  return sum_of(sum);
}

template <int kVectors, class T>
HWY_INLINE void mix_values(const float* weights, const T* values, std::int64_t tokens,
                           std::int64_t stride, std::int64_t width, float factor, float* result) {
  const auto lanes_from = [&](const T* from, int v) HWY_ATTR {
    return load_values(from + v * lane_count(), width - v * lane_count());
  };
  Vector sums[kVectors];
  for (int v = 0; v < kVectors; ++v) sums[v] = hn::Zero(Lanes());
  for (std::int64_t t = 0; t < tokens; ++t) {
    const Vector weight = hn::Set(Lanes(), weights[t]);
#pragma GCC unroll 4
    for (int v = 0; v < kVectors; ++v) {
      sums[v] = hn::MulAdd(weight, lanes_from(values + t * stride, v), sums[v]);
    }
  }
  for (int v = 0; v < kVectors; ++v) {
    store_upto(hn::Mul(sums[v], hn::Set(Lanes(), factor)), result + v * lane_count(),
               width - v * lane_count());
  }
}

template <class T>
void attend_head(const cpu::CacheAttention<T>& all, std::int64_t head,
                 std::vector<float>& weights) {
  const std::int64_t stride = all.key_heads * all.width;
  const std::int64_t key_head = head / (all.heads / all.key_heads);
  const std::int64_t first = key_head * all.width;
  const auto scale_of = [&](const float* scales, std::int64_t t) {
    return scales == nullptr ? 1 : scales[t * all.key_heads + key_head];
  };
  const float* const query = all.query + head * all.width;
  float most = all.sinks == nullptr ? -std::numeric_limits<float>::infinity() : all.sinks[head];
  for (std::int64_t t = 0; t < all.tokens; ++t) {
    float score = all.scale * scale_of(all.key_scales, t) *
                  dot_of(query, all.keys + t * stride + first, all.width);
    if (all.softcap > 0) score = all.softcap * std::tanh(score / all.softcap);
    weights[static_cast<std::size_t>(t)] = score;
    most = std::max(most, score);
  }
  float sum = weigh_scores(all.tokens, most, weights.data());
  if (all.sinks != nullptr) sum += std::exp(all.sinks[head] - most);
  for (std::int64_t t = 0; all.value_scales != nullptr && t < all.tokens; ++t) {
    weights[static_cast<std::size_t>(t)] *= scale_of(all.value_scales, t);
  }
  constexpr int kVectors = 4;
  const std::int64_t together = kVectors * lane_count();
  const T* const values = all.values + first;
  float* const result = all.result + head * all.width;
  std::int64_t from = 0;
  for (; from + together <= all.width; from += together) {
    mix_values<kVectors>(weights.data(), values + from, all.tokens, stride, together, 1 / sum,
                         result + from);
  }
  for (; from < all.width; from += lane_count()) {
    mix_values<1>(weights.data(), values + from, all.tokens, stride,
                  std::min(lane_count(), all.width - from), 1 / sum, result + from);
  }
}

template <class T>
void attend_all(const cpu::CacheAttention<T>& all) {
  std::vector<float> weights(static_cast<std::size_t>(all.tokens + kMostLanes));
  for (std::int64_t head = 0; head < all.heads; ++head) attend_head(all, head, weights);
}

// Templates cannot be chosen at run time.
void attend_to_floats(const cpu::CacheAttention<float>& all) { attend_all(all); }
void attend_to_bytes(const cpu::CacheAttention<std::int8_t>& all) { attend_all(all); }

}  // namespace strait::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace strait::kernels {

HWY_EXPORT(attend_to_floats);
HWY_EXPORT(attend_to_bytes);

void cpu::cache_attention(const CacheAttention<float>& all) {
  HWY_DYNAMIC_DISPATCH(attend_to_floats)(all);
}
void cpu::cache_attention(const CacheAttention<std::int8_t>& all) {
  HWY_DYNAMIC_DISPATCH(attend_to_bytes)(all);
}

}  // namespace strait::kernels
#endif
