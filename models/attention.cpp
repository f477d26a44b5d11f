#include "models/attention.h"

#include <ATen/ATen.h>

#include <algorithm>

#include "kernels/kernel_tensors.h"
#include "kernels/parallel.h"
#include "models/batch_invariance.h"
#include "models/key_value_cache.h"

namespace strait::models {
namespace {

// Every sequence goes on by a token that kernels::attention_to_cache() computes in one thread, so
// threads can share the sequences, and change no bits.
bool single_tokens(const kernels::AttentionHeads& inputs, const KeyValueCache& cache) {
  return cache.extends_by_tokens(inputs.query) && inputs.key.sizes() == inputs.value.sizes();
}

at::Tensor attend_single_tokens(const kernels::AttentionHeads& inputs, int layer,
                                const kernels::AttentionRules& rules, const KeyValueCache& cache) {
  const auto by_token = [](const at::Tensor& values) { return values.flatten(0, 1).contiguous(); };
  const at::Tensor query = by_token(inputs.query);
  const at::Tensor key = by_token(inputs.key);
  const at::Tensor value = by_token(inputs.value);
  at::Tensor result = at::empty_like(query);
  kernels::parallel_for(query.size(0), 1, [&](std::int64_t first, std::int64_t last) {
    for (std::int64_t i = first; i < last; ++i) {
      const auto own = [i](const at::Tensor& all) { return all.narrow(0, i, 1).unsqueeze(0); };
      kernels::AttentionHeads heads{own(query), {}, {}, inputs.sinks};
      SequenceCache& sequence = *cache.extensions()[static_cast<std::size_t>(i)].sequence;
      const std::vector<at::Tensor> kept = sequence.append(layer, {own(key), own(value)});
      heads.key = kept[0];
      heads.value = kept[1];
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
    return kernels::causal_attention(inputs, pass.documents, rules).flatten(2);
  }
  if (single_tokens(inputs, *pass.cache)) {
    return attend_single_tokens(inputs, options.layer, rules, *pass.cache).flatten(2);
  }
  return pass.cache
      ->by_sequence(
          {inputs.query, inputs.key, inputs.value},
          [&](SequenceCache& sequence, const std::vector<at::Tensor>& own) {
            const std::vector<at::Tensor> kept = sequence.append(options.layer, {own[1], own[2]});
            return kernels::attention_to_cache({own[0], kept[0], kept[1], inputs.sinks}, rules);
          })
      .flatten(2);
}

}  // namespace strait::models
