#include "models/attention.h"

#include <ATen/ATen.h>

#include <tuple>

#include "models/key_value_cache.h"

namespace strait::models {

at::Tensor attend(const AttentionInputs& inputs, const AttentionOptions& options,
                  const Pass& pass) {
  kernels::AttentionRules rules;
  rules.scale = options.scale;
  rules.window = options.window;
  rules.softcap = options.softcap;
  if (pass.cache == nullptr) {
    if (pass.training) rules.dropout = options.dropout;
    rules.dropout_key = pass.dropout_key(options.layer, options.site);
    return kernels::causal_attention(inputs, pass.documents, rules).flatten(2);
  }
  AttentionInputs all = inputs;
  std::tie(all.key, all.value) = pass.cache->append(options.layer, inputs.key, inputs.value);
  return kernels::attention_to_cache(all, rules).flatten(2);
}

}  // namespace strait::models
