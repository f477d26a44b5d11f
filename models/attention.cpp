#include "models/attention.h"

#include <ATen/ATen.h>

#include <algorithm>

#include "kernels/kernel_tensors.h"
#include "kernels/parallel.h"
#include "kernels/quantized_heads.h"
#include "models/batch_invariance.h"
#include "models/key_value_cache.h"
#include "models/slice_keys.h"

namespace strait::models {
namespace {

// Every sequence goes on by a token that kernels::attention_to_cache() computes in one thread, so
// threads can share the sequences, and change no bits.
bool single_tokens(const kernels::AttentionHeads& inputs, const KeyValueCache& cache) {
  return cache.extends_by_tokens(inputs.query) && inputs.key.sizes() == inputs.value.sizes();
}

// What the cache keeps of new keys and values.
std::vector<at::Tensor> kept_of(const kernels::AttentionHeads& inputs, const KeyValueCache& cache) {
  if (cache.format() == CacheFormat::float32) return {inputs.key, inputs.value};
  const kernels::QuantizedHeads key = kernels::quantize_heads(inputs.key);
  const kernels::QuantizedHeads value = kernels::quantize_heads(inputs.value);
  return {key.values, value.values, key.scales, value.scales};
}

kernels::AttentionHeads with_kept(const at::Tensor& query, const std::vector<at::Tensor>& kept,
                                  const at::Tensor& sinks) {
  kernels::AttentionHeads heads{query, kept[0], kept[1], sinks};
  if (kept.size() > 2) {
    heads.key_scales = kept[2];
    heads.value_scales = kept[3];
  }
  return heads;
}

at::Tensor attend_single_tokens(const kernels::AttentionHeads& inputs, int layer,
                                const kernels::AttentionRules& rules, const KeyValueCache& cache) {
  const auto by_token = [](const at::Tensor& values) { return values.flatten(0, 1).contiguous(); };
  const at::Tensor query = by_token(inputs.query);
  std::vector<at::Tensor> added;
  for (const at::Tensor& one : kept_of(inputs, cache)) added.push_back(by_token(one));
  at::Tensor result = at::empty_like(query);
  kernels::parallel_for(query.size(0), 1, [&](std::int64_t first, std::int64_t last) {
    for (std::int64_t i = first; i < last; ++i) {
      const auto own = [i](const at::Tensor& all) { return all.narrow(0, i, 1).unsqueeze(0); };
      SequenceCache& sequence = *cache.extensions()[static_cast<std::size_t>(i)].sequence;
      std::vector<at::Tensor> token;
      token.reserve(added.size());
      for (const at::Tensor& one : added) token.push_back(own(one));
      const auto heads = with_kept(own(query), sequence.append(layer, token), inputs.sinks);
      result[i].copy_(kernels::attention_to_cache(heads, rules)[0][0]);
    }
  });
  return result.view(inputs.query.sizes());
}

}  // namespace

at::Tensor grown(const at::Tensor& queries, const QueryGrowth& growth, const Pass& pass) {
  if (growth.beta == 0) return queries;
  const at::Tensor periods = pass.positions.to(at::kFloat).div(growth.period).floor();
  if (periods.max().item<double>() == 0) return queries;
  const at::Tensor logarithms =
      by_token(pass, {periods.unsqueeze(-1)}, [](const auto& token) { return token[0].log1p(); });
  const at::Tensor factors =
      logarithms.squeeze(-1).mul(growth.beta).add(1).to(queries.scalar_type());
  return queries * kernels::on_device(factors, queries.device()).unsqueeze(2).unsqueeze(3);
}

at::Tensor attend(const kernels::AttentionHeads& inputs, const AttentionOptions& options,
                  const Pass& pass) {
  kernels::AttentionRules rules;
  rules.scale = options.scale;
  rules.window = options.window;
  rules.softcap = options.softcap;
  if (pass.cache == nullptr) {
    if (pass.training) rules.dropout = options.dropout;
    // 0 is the number of this dropout among those of a layer (decoder_layers.cpp).
    rules.dropout_key = pass.dropout_key(options.layer, 0);
    if (pass.slice.keys == nullptr) {
      return kernels::causal_attention(inputs, pass.documents, rules).flatten(2);
    }
    const kernels::AttentionHeads all =
        pass.slice.keys->extend(options.layer, pass.slice.index, pass.slice.trains, inputs);
    return kernels::causal_attention(all, pass.documents, rules).flatten(2);
  }
  if (single_tokens(inputs, *pass.cache)) {
    return attend_single_tokens(inputs, options.layer, rules, *pass.cache).flatten(2);
  }
  std::vector<at::Tensor> values = kept_of(inputs, *pass.cache);
  values.insert(values.begin(), inputs.query);
  const auto attend_sequence = [&](SequenceCache& sequence, const std::vector<at::Tensor>& own) {
    const auto kept = sequence.append(options.layer, {own.begin() + 1, own.end()});
    return kernels::attention_to_cache(with_kept(own[0], kept, inputs.sinks), rules);
  };
  return pass.cache->by_sequence(values, attend_sequence).flatten(2);
}

}  // namespace strait::models
