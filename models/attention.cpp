#include "models/attention.h"

#include <ATen/ATen.h>

#include <limits>
#include <optional>
#include <tuple>

#include "kernels/dropout.h"
#include "models/key_value_cache.h"

namespace strait::models {
namespace {

at::Tensor causal_mask(std::int64_t queries, std::int64_t keys, at::Device device) {
  const auto options = at::TensorOptions(at::kBool).device(device);
  return at::ones({queries, keys}, options).tril(keys - queries);
}

at::Tensor fused_attention(const AttentionInputs& inputs, const at::Tensor& mask, double scale) {
  const std::int64_t queries = inputs.query.size(2);
  const std::int64_t keys = inputs.key.size(2);
  const bool causal = !mask.defined() && queries == keys;
  std::optional<at::Tensor> allowed;
  if (mask.defined()) {
    allowed = mask;
  } else if (!causal && queries > 1) {
    allowed = causal_mask(queries, keys, inputs.query.device());
  }
  return at::scaled_dot_product_attention(inputs.query, inputs.key, inputs.value, allowed,
                                          /*dropout_p=*/0.0, causal, scale);
}

at::Tensor explicit_attention(const AttentionInputs& inputs, const at::Tensor& mask,
                              const AttentionOptions& options, const Pass& pass) {
  at::Tensor scores = at::matmul(inputs.query, inputs.key.transpose(2, 3)).mul(options.scale);
  const at::Tensor allowed =
      mask.defined() ? mask
                     : causal_mask(inputs.query.size(2), inputs.key.size(2), scores.device());
  scores = scores.masked_fill(allowed.logical_not(), -std::numeric_limits<double>::infinity());
  const at::Tensor probabilities = kernels::dropout(at::softmax(scores, -1), options.dropout,
                                                    pass.dropout_key(options.layer, options.site));
  return at::matmul(probabilities, inputs.value);
}

}  // namespace

at::Tensor attend(const AttentionInputs& inputs, const AttentionOptions& options,
                  const Pass& pass) {
  AttentionInputs all = inputs;
  if (pass.cache != nullptr) {
    std::tie(all.key, all.value) = pass.cache->append(options.layer, inputs.key, inputs.value);
  }
  const at::Tensor result = pass.training && options.dropout > 0
                                ? explicit_attention(all, pass.attention_mask, options, pass)
                                : fused_attention(all, pass.attention_mask, options.scale);
  return result.transpose(1, 2).flatten(2);
}

}  // namespace strait::models
