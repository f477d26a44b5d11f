#include "kernels/cache_attention.h"

#include <ATen/ATen.h>

#include <algorithm>

namespace strait::kernels {
namespace {

template <class T>
at::Tensor attend_as(const AttentionHeads& heads, const AttentionRules& rules) {
  at::Tensor result = at::empty(heads.query.sizes(), heads.query.options());
  cpu::CacheAttention<T> all;
  const std::int64_t past = heads.key.size(1);
  all.tokens = rules.window > 0 ? std::min(rules.window, past) : past;
  all.heads = heads.query.size(2);
  all.key_heads = heads.key.size(2);
  all.width = heads.query.size(3);
  const std::int64_t unseen = (past - all.tokens) * all.key_heads;
  all.query = heads.query.const_data_ptr<float>();
  all.keys = heads.key.const_data_ptr<T>() + unseen * all.width;
  all.values = heads.value.const_data_ptr<T>() + unseen * all.width;
  if (heads.key_scales.defined()) {
    all.key_scales = heads.key_scales.const_data_ptr<float>() + unseen;
    all.value_scales = heads.value_scales.const_data_ptr<float>() + unseen;
  }
  if (heads.sinks.defined()) all.sinks = heads.sinks.const_data_ptr<float>();
  all.result = result.mutable_data_ptr<float>();
  all.scale = static_cast<float>(rules.scale);
  all.softcap = static_cast<float>(rules.softcap);
  cpu::cache_attention(all);
  return result;
}

}  // namespace

bool is_one_token(const AttentionHeads& heads) {
  const auto fits = [](const at::Tensor& one, at::ScalarType type) {
    return one.is_cpu() && one.scalar_type() == type && one.is_contiguous();
  };
  const at::ScalarType kept = heads.key_scales.defined() ? at::kChar : at::kFloat;
  return heads.query.size(0) == 1 && heads.query.size(1) == 1 && fits(heads.query, at::kFloat) &&
         fits(heads.key, kept) && fits(heads.value, kept) &&
         heads.key.sizes() == heads.value.sizes() &&
         (!heads.sinks.defined() || fits(heads.sinks, at::kFloat));
}

at::Tensor attend_one_token(const AttentionHeads& heads, const AttentionRules& rules) {
  return heads.key_scales.defined() ? attend_as<std::int8_t>(heads, rules)
                                    : attend_as<float>(heads, rules);
}

}  // namespace strait::kernels
