#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cache_attention_cpu.cpp"
#include <hwy/foreach_target.h>  // must come before highway.h
#include <hwy/highway.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <vector>

// clang-format off: highway.h comes first
#include <hwy/contrib/math/math-inl.h>
// clang-format on

#include "kernels/cache_attention.h"
#include "kernels/lanes-inl.h"

HWY_BEFORE_NAMESPACE();
namespace strait::kernels::HWY_NAMESPACE {

// A vector of values in either format.
HWY_INLINE Vector load_values(const float* from) { return load_lanes(from); }
HWY_INLINE Vector load_values(const std::int8_t* from) {
  const hn::Rebind<std::int8_t, Lanes> bytes;
  return hn::ConvertTo(Lanes(), hn::PromoteTo(CountLanes(), hn::LoadU(bytes, from)));
}
// Fewer; the other lanes are zero.
template <class T>
HWY_INLINE Vector load_few(const T* from, std::int64_t count) {
  T some[kMostLanes] = {};
  std::memcpy(some, from, static_cast<std::size_t>(count) * sizeof(T));
  return load_values(some);
}

template <class T>
HWY_INLINE float dot_of(const float* left, const T* right, std::int64_t width) {
  Vector sum = hn::Zero(Lanes());
  std::int64_t i = 0;
  for (; i + lane_count() <= width; i += lane_count()) {
    sum = hn::MulAdd(load_lanes(left + i), load_values(right + i), sum);
  }
  if (i < width) {
    sum = hn::MulAdd(load_upto(left + i, width - i), load_few(right + i, width - i), sum);
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

// Adds vectors of the values of tokens, each times its weight, to `result`. `few`: the values of a
// vector that is not whole; 0: all are.
template <int kVectors, class T>
HWY_INLINE void mix_values(const float* weights, const T* values, std::int64_t tokens,
                           std::int64_t stride, std::int64_t few, float* result) {
  Vector sums[kVectors];
  for (int v = 0; v < kVectors; ++v) {
    sums[v] = few > 0 ? load_few(result, few) : load_lanes(result + v * lane_count());
  }
  for (std::int64_t t = 0; t < tokens; ++t) {
    const Vector weight = hn::Set(Lanes(), weights[t]);
    const T* const own = values + t * stride;
#pragma GCC unroll 8
    for (int v = 0; v < kVectors; ++v) {
      const Vector value = few > 0 ? load_few(own, few) : load_values(own + v * lane_count());
      sums[v] = hn::MulAdd(weight, value, sums[v]);
    }
  }
  for (int v = 0; v < kVectors; ++v) {
    store_upto(sums[v], result + v * lane_count(), few > 0 ? few : lane_count());
  }
}

// Of a token that attends: each part is for one head and some of the tokens that it sees.
template <class T>
class TokenAttention {
 public:
  explicit TokenAttention(const cpu::CacheAttention<T>& all)
      : all_(all),
        stride_(all.key_heads * all.width),
        room_(all.tokens + kMostLanes),
        weights_(static_cast<std::size_t>(all.heads * room_)) {}

  // A head has few of the values of a token, and far from those of the next token. So all heads
  // take some tokens before any takes the next, which lie one after the other in memory.
  void compute() {
    for_parts([this](std::int64_t head, std::int64_t first, std::int64_t last)
                  HWY_ATTR { score_tokens(head, first, last); });
    for (std::int64_t head = 0; head < all_.heads; ++head) weigh_tokens(head);
    std::fill(all_.result, all_.result + all_.heads * all_.width, 0.0F);
    for_parts([this](std::int64_t head, std::int64_t first, std::int64_t last)
                  HWY_ATTR { mix_tokens(head, first, last); });
  }

 private:
  template <class Part>
  HWY_INLINE void for_parts(const Part& part) const {
    constexpr std::int64_t kTokens = 16;
    for (std::int64_t first = 0; first < all_.tokens; first += kTokens) {
      const std::int64_t last = std::min(first + kTokens, all_.tokens);
      for (std::int64_t head = 0; head < all_.heads; ++head) part(head, first, last);
    }
  }
  std::int64_t key_head(std::int64_t head) const { return head / (all_.heads / all_.key_heads); }
  float* weights_of(std::int64_t head) { return weights_.data() + head * room_; }
  float scale_of(const float* scales, std::int64_t head, std::int64_t token) const {
    return scales == nullptr ? 1 : scales[token * all_.key_heads + key_head(head)];
  }

  HWY_INLINE void score_tokens(std::int64_t head, std::int64_t first, std::int64_t last) {
    const float* const query = all_.query + head * all_.width;
    const T* const keys = all_.keys + key_head(head) * all_.width;
    float* const scores = weights_of(head);
    for (std::int64_t t = first; t < last; ++t) {
      const float scale = all_.scale * scale_of(all_.key_scales, head, t);
      const float score = scale * dot_of(query, keys + t * stride_, all_.width);
      scores[t] = all_.softcap > 0 ? all_.softcap * std::tanh(score / all_.softcap) : score;
    }
  }

  // To the shares of the values, with their scales.
  HWY_INLINE void weigh_tokens(std::int64_t head) {
    float* const weights = weights_of(head);
    float most = *std::max_element(weights, weights + all_.tokens);
    if (all_.sinks != nullptr) most = std::max(most, all_.sinks[head]);
    float sum = weigh_scores(all_.tokens, most, weights);
    if (all_.sinks != nullptr) sum += std::exp(all_.sinks[head] - most);
    const float factor = 1 / sum;
    for (std::int64_t t = 0; t < all_.tokens; ++t) {
      weights[t] *= factor * scale_of(all_.value_scales, head, t);
    }
  }

  HWY_INLINE void mix_tokens(std::int64_t head, std::int64_t first, std::int64_t last) {
    constexpr int kVectors = 8;
    const float* const weights = weights_of(head) + first;
    const T* const values = all_.values + first * stride_ + key_head(head) * all_.width;
    float* const result = all_.result + head * all_.width;
    const std::int64_t tokens = last - first;
    std::int64_t from = 0;
    for (; from + kVectors * lane_count() <= all_.width; from += kVectors * lane_count()) {
      mix_values<kVectors>(weights, values + from, tokens, stride_, 0, result + from);
    }
    for (; from + lane_count() <= all_.width; from += lane_count()) {
      mix_values<1>(weights, values + from, tokens, stride_, 0, result + from);
    }
    if (from < all_.width) {
      mix_values<1>(weights, values + from, tokens, stride_, all_.width - from, result + from);
    }
  }

  const cpu::CacheAttention<T>& all_;
  const std::int64_t stride_;
  const std::int64_t room_;  // of the weights of a head: whole vectors
  std::vector<float> weights_;
};

// Templates cannot be chosen at run time.
void attend_to_floats(const cpu::CacheAttention<float>& all) {
  TokenAttention<float>(all).compute();
}
void attend_to_bytes(const cpu::CacheAttention<std::int8_t>& all) {
  TokenAttention<std::int8_t>(all).compute();
}

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
