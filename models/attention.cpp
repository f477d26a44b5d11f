#include "models/attention.h"

#include <ATen/ATen.h>

#include <tuple>

#include "kernels/kernel_tensors.h"
#include "models/batch_invariance.h"
#include "models/key_value_cache.h"

namespace strait::models {

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
  return pass.cache
      ->by_sequence({inputs.query, inputs.key, inputs.value},
                    [&](SequenceCache& sequence, const std::vector<at::Tensor>& own) {
                      kernels::AttentionHeads all{own[0], {}, {}, inputs.sinks};
                      std::tie(all.key, all.value) = sequence.append(options.layer, own[1], own[2]);
                      return kernels::attention_to_cache(all, rules);
                    })
      .flatten(2);
}

}  // namespace strait::models
