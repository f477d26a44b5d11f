#include "kernels/causal_attention.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <torch/csrc/autograd/custom_function.h>

#include <algorithm>
#include <limits>
#include <optional>
#include <utility>

#include "kernels/cache_attention.h"
#include "kernels/flash_attention.h"
#include "kernels/quantized_heads.h"

namespace strait::kernels {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

// [tokens, heads, width] of a span to [key heads, group, tokens, width], without a copy.
at::Tensor grouped(const at::Tensor& values, const AttentionSpan& span, std::int64_t key_heads) {
  return values.select(0, span.row)
      .narrow(0, span.begin, span.length)
      .transpose(0, 1)
      .unflatten(0, {key_heads, values.size(2) / key_heads});
}

// The tokens that the span's queries attend to, among the keys of its row.
AttentionSpan keys_of(const AttentionHeads& heads, const AttentionSpan& span) {
  const std::int64_t earlier = heads.key.size(1) - heads.query.size(1);
  return {span.row, earlier + span.begin - span.past, span.past + span.length};
}

// One span's heads, each [key heads, group, tokens, width]; keys and values have a group of one.
struct SpanHeads {
  at::Tensor query;
  at::Tensor key;
  at::Tensor value;
  at::Tensor sinks;  // [key heads, group, 1, 1], or undefined
};

at::Tensor grouped_sinks(const AttentionHeads& heads) {
  if (!heads.sinks.defined()) return {};
  return heads.sinks.view({heads.key.size(2), -1, 1, 1});
}

SpanHeads span_heads(const AttentionHeads& heads, const AttentionSpan& span) {
  const std::int64_t key_heads = heads.key.size(2);
  const AttentionSpan keys = keys_of(heads, span);
  return {grouped(heads.query, span, key_heads), grouped(heads.key, keys, key_heads),
          grouped(heads.value, keys, key_heads), grouped_sinks(heads)};
}

at::Tensor shared_by(const at::Tensor& keys, const at::Tensor& query) {
  return keys.expand({-1, query.size(1), -1, -1});
}

// ---- a few queries at a time: windows, caps and dropout -----------------------------------------

struct Block {
  std::int64_t first = 0;  // query, counted like keys
  std::int64_t queries = 0;
  std::int64_t keys_begin = 0;  // up to the last query's own
  std::int64_t keys = 0;
};

std::int64_t past_of(const SpanHeads& heads) { return heads.key.size(2) - heads.query.size(2); }

// The number depends on sizes only, so that sums have one order.
std::vector<Block> blocks_of(const SpanHeads& span, std::int64_t window) {
  constexpr std::int64_t kScores = 1 << 21;
  const std::int64_t heads = span.query.size(0) * span.query.size(1);
  const std::int64_t tokens = span.key.size(2);
  std::int64_t first = past_of(span);
  std::vector<Block> blocks;
  while (first < tokens) {
    const std::int64_t reach = window > 0 ? std::min(window, tokens) : tokens;
    const std::int64_t count =
        std::clamp<std::int64_t>(kScores / std::max<std::int64_t>(1, heads * reach), 16, 256);
    Block block;
    block.first = first;
    block.queries = std::min(count, tokens - first);
    block.keys_begin = window > 0 ? std::max<std::int64_t>(0, first - window + 1) : 0;
    block.keys = first + block.queries - block.keys_begin;
    blocks.push_back(block);
    first += block.queries;
  }
  return blocks;
}

// True where a query may not see a key: later keys, and keys before its window.
at::Tensor hidden_keys(const Block& block, std::int64_t window, at::Device device) {
  const auto options = at::TensorOptions(at::kLong).device(device);
  const at::Tensor query = at::arange(block.first, block.first + block.queries, options);
  const at::Tensor key = at::arange(block.keys_begin, block.keys_begin + block.keys, options);
  const at::Tensor distance = query.unsqueeze(1).sub(key.unsqueeze(0));
  at::Tensor hidden = distance.lt(0);
  if (window > 0) hidden.logical_or_(distance.ge(window));
  return hidden;
}

struct BlockScores {
  at::Tensor probabilities;  // [key heads, group, queries, keys], float32 or float64
  at::Tensor sink;           // [key heads, group, queries, 1]: the sink's, if there is one
  at::Tensor cap_slope;      // derivative of the cap, if there is one
};

BlockScores block_scores(const at::Tensor& query, const at::Tensor& key, const at::Tensor& sinks,
                         const Block& block, const AttentionRules& rules) {
  const auto type = query.scalar_type() == at::kDouble ? at::kDouble : at::kFloat;
  BlockScores result;
  at::Tensor scores = at::matmul(query, key.transpose(2, 3)).to(type).mul_(rules.scale);
  if (rules.softcap > 0) {
    scores.div_(rules.softcap).tanh_();
    result.cap_slope = at::mul(scores, scores).neg_().add_(1);
    scores.mul_(rules.softcap);
  }
  scores.masked_fill_(hidden_keys(block, rules.window, scores.device()),
                      -std::numeric_limits<double>::infinity());
  if (!sinks.defined()) {
    result.probabilities = at::softmax(scores, -1);
    return result;
  }
  const at::Tensor sink = sinks.to(type).expand({-1, -1, block.queries, 1});
  const at::Tensor all = at::softmax(at::cat({scores, sink}, -1), -1);
  result.probabilities = all.narrow(-1, 0, block.keys);
  result.sink = all.narrow(-1, block.keys, 1);
  return result;
}

// The probabilities after dropout, already scaled; undefined without dropout. By positions of
// keys in their row, so that slices of a row draw different masks.
at::Tensor kept(const at::Tensor& probabilities, const AttentionSpan& keys, const Block& block,
                const AttentionRules& rules) {
  if (rules.dropout == 0) return {};
  DropoutKey key = rules.dropout_key;
  key.site =
      mix_key({key.site, static_cast<std::uint64_t>(keys.row),
               static_cast<std::uint64_t>(keys.begin), static_cast<std::uint64_t>(block.first)});
  const double scale = rules.dropout < 1 ? 1 / (1 - rules.dropout) : 0;
  return keep_mask(probabilities.sizes(), rules.dropout, key, probabilities.device())
      .to(probabilities.scalar_type())
      .mul_(scale);
}

at::Tensor block_part(const at::Tensor& values, std::int64_t begin, std::int64_t count) {
  return values.narrow(2, begin, count);
}

void attend_by_blocks(const SpanHeads& heads, const AttentionSpan& keys,
                      const AttentionRules& rules, const at::Tensor& result) {
  const std::int64_t past = past_of(heads);
  for (const Block& block : blocks_of(heads, rules.window)) {
    const at::Tensor query = block_part(heads.query, block.first - past, block.queries);
    const at::Tensor key = block_part(heads.key, block.keys_begin, block.keys);
    const at::Tensor value = block_part(heads.value, block.keys_begin, block.keys);
    at::Tensor probabilities = block_scores(query, key, heads.sinks, block, rules).probabilities;
    const at::Tensor keep = kept(probabilities, keys, block, rules);
    if (keep.defined()) probabilities = probabilities.mul(keep);
    block_part(result, block.first - past, block.queries)
        .copy_(at::matmul(probabilities.to(value.scalar_type()), value));
  }
}

void backward_by_blocks(const SpanHeads& heads, const AttentionSpan& keys,
                        const AttentionRules& rules, const at::Tensor& slope,
                        const SpanHeads& gradient) {
  const std::int64_t past = past_of(heads);
  const auto narrow_type = heads.query.scalar_type();
  for (const Block& block : blocks_of(heads, rules.window)) {
    const at::Tensor query = block_part(heads.query, block.first - past, block.queries);
    const at::Tensor key = block_part(heads.key, block.keys_begin, block.keys);
    const at::Tensor value = block_part(heads.value, block.keys_begin, block.keys);
    const at::Tensor own = block_part(slope, block.first - past, block.queries);
    const BlockScores scores = block_scores(query, key, heads.sinks, block, rules);
    const at::Tensor& probabilities = scores.probabilities;
    const at::Tensor keep = kept(probabilities, keys, block, rules);
    const at::Tensor used = keep.defined() ? probabilities.mul(keep) : probabilities;
    block_part(gradient.value, block.keys_begin, block.keys)
        .add_(at::matmul(used.to(narrow_type).transpose(2, 3), own).sum(1, /*keepdim=*/true));
    at::Tensor into = at::matmul(own, value.transpose(2, 3)).to(probabilities.scalar_type());
    if (keep.defined()) into.mul_(keep);
    const at::Tensor along = at::mul(into, probabilities).sum(-1, /*keepdim=*/true);
    if (scores.sink.defined()) {
      gradient.sinks.sub_(at::mul(scores.sink, along).sum(2, /*keepdim=*/true));
    }
    into.sub_(along).mul_(probabilities);
    if (scores.cap_slope.defined()) into.mul_(scores.cap_slope);
    const at::Tensor inner = into.mul_(rules.scale).to(narrow_type);
    block_part(gradient.query, block.first - past, block.queries).copy_(at::matmul(inner, key));
    block_part(gradient.key, block.keys_begin, block.keys)
        .add_(at::matmul(inner.transpose(2, 3), query).sum(1, /*keepdim=*/true));
  }
}

// ---- libtorch's fused kernel, wherever its formula is ours --------------------------------------

bool fused_fits(const AttentionRules& rules, std::int64_t tokens, at::Device device) {
  return rules.dropout == 0 && rules.softcap == 0 &&
         (rules.window == 0 || rules.window >= tokens) && device.is_cpu();
}

// Keys hidden from queries after a past; libtorch's own causal mask gives the first query one key.
std::optional<at::Tensor> mask_of(const AttentionSpan& span, const at::Tensor& query) {
  if (span.past == 0) return std::nullopt;
  const double hidden = -std::numeric_limits<double>::infinity();
  return at::full({span.length, span.past + span.length}, hidden, query.options())
      .triu_(span.past + 1);
}

struct DocumentAttention : public torch::autograd::Function<DocumentAttention> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& query,
                            const at::Tensor& key, const at::Tensor& value,
                            const std::optional<at::Tensor>& sinks,
                            const std::vector<AttentionSpan>& spans, const AttentionRules& rules) {
    const AttentionHeads heads{query, key, value, sinks.value_or(at::Tensor())};
    at::Tensor result = at::zeros(query.sizes(), query.options());
    variable_list saved{query, key, value, heads.sinks, result};
    for (const AttentionSpan& span : spans) {
      const SpanHeads own = span_heads(heads, span);
      const at::Tensor into = grouped(result, span, key.size(2));
      if (!fused_fits(rules, span.past + span.length, query.device())) {
        attend_by_blocks(own, keys_of(heads, span), rules, into);
        continue;
      }
      const auto [attended, weights] = at::_scaled_dot_product_flash_attention_for_cpu(
          own.query, shared_by(own.key, own.query), shared_by(own.value, own.query),
          /*dropout_p=*/0.0, /*is_causal=*/span.past == 0, mask_of(span, query), rules.scale);
      if (!sinks) {
        into.copy_(attended);
        saved.push_back(weights);
        continue;
      }
      // With the logarithm of the sum that includes the sink, libtorch's backward is right as it
      // is: it computes probabilities by that sum.
      const at::Tensor sums =
          at::logaddexp(weights, own.sinks.squeeze(3).to(weights.scalar_type()));
      into.copy_(attended * at::sub(weights, sums).exp_().unsqueeze(3));
      saved.push_back(sums);
    }
    context->save_for_backward(saved);
    context->saved_data["spans"] =
        c10::IValue::make_capsule(c10::make_intrusive<Job>(spans, rules));
    return result;
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    const variable_list saved = context->get_saved_variables();
    const auto capsule = context->saved_data["spans"].toCapsule();
    const auto* job = dynamic_cast<const Job*>(capsule.get());
    const AttentionHeads heads{saved[0], saved[1], saved[2], saved[3]};
    const auto type = saved[1].scalar_type();
    // Several blocks of queries add to the same keys and values; in a narrow type each addition
    // would round.
    const auto sums = saved[1].options().dtype(type == at::kDouble ? type : at::kFloat);
    AttentionHeads into{at::zeros_like(saved[0]),
                        at::zeros_like(saved[1], sums),
                        at::zeros_like(saved[2], sums),
                        {}};
    if (heads.sinks.defined()) into.sinks = at::zeros_like(heads.sinks, sums);
    std::size_t weights = 5;
    for (const AttentionSpan& span : job->spans) {
      const SpanHeads own = span_heads(heads, span);
      const SpanHeads gradient = span_heads(into, span);
      const at::Tensor slope = grouped(gradients[0], span, heads.key.size(2));
      if (!fused_fits(job->rules, span.past + span.length, heads.query.device())) {
        backward_by_blocks(own, keys_of(heads, span), job->rules, slope, gradient);
        continue;
      }
      const at::Tensor result = grouped(saved[4], span, heads.key.size(2));
      const at::Tensor& sums_of_rows = saved[weights++];
      const auto [query, key, value] = at::_scaled_dot_product_flash_attention_for_cpu_backward(
          slope, own.query, shared_by(own.key, own.query), shared_by(own.value, own.query), result,
          sums_of_rows, /*dropout_p=*/0.0, /*is_causal=*/span.past == 0, mask_of(span, heads.query),
          job->rules.scale);
      if (own.sinks.defined()) {
        const at::Tensor along =
            at::mul(slope, result).sum(-1, /*keepdim=*/true, gradient.sinks.scalar_type());
        const at::Tensor share = at::sub(own.sinks, sums_of_rows.unsqueeze(3)).exp_();
        gradient.sinks.sub_(at::mul(along, share).sum(2, /*keepdim=*/true));
      }
      gradient.query.copy_(query);
      gradient.key.copy_(key.sum(1, /*keepdim=*/true));
      gradient.value.copy_(value.sum(1, /*keepdim=*/true));
    }
    const at::Tensor sinks =
        into.sinks.defined() ? into.sinks.to(heads.sinks.scalar_type()) : at::Tensor();
    return {into.query, into.key.to(type), into.value.to(type), sinks, at::Tensor(), at::Tensor()};
  }

  struct Job : public torch::CustomClassHolder {
    Job(std::vector<AttentionSpan> all, const AttentionRules& how)
        : spans(std::move(all)), rules(how) {}
    std::vector<AttentionSpan> spans;
    AttentionRules rules;
  };
};

}  // namespace

at::Tensor causal_attention(const AttentionHeads& heads, const std::vector<AttentionSpan>& spans,
                            const AttentionRules& rules) {
  TORCH_INTERNAL_ASSERT(
      heads.query.dim() == 4 && heads.key.dim() == 4 && heads.key.sizes() == heads.value.sizes() &&
          heads.query.size(0) == heads.key.size(0) && heads.query.size(1) <= heads.key.size(1) &&
          heads.query.size(2) % heads.key.size(2) == 0,
      "attention of queries ", heads.query.sizes(), " to keys ", heads.key.sizes());
  for (const AttentionSpan& span : spans) {
    TORCH_INTERNAL_ASSERT(span.past == 0 || (span.past > 0 && span.begin == 0 &&
                                             span.past + heads.query.size(1) <= heads.key.size(1)),
                          "attention to ", span.past, " tokens before token ", span.begin, " of ",
                          heads.query.sizes(), " with keys ", heads.key.sizes());
  }
  if (flash_attention_fits(heads, rules)) return flash_attention(heads, spans, rules);
  const std::optional<at::Tensor> sinks =
      heads.sinks.defined() ? std::optional(heads.sinks) : std::nullopt;
  return DocumentAttention::apply(heads.query, heads.key, heads.value, sinks, spans, rules);
}

at::Tensor attention_to_cache(const AttentionHeads& heads, const AttentionRules& rules) {
  const at::NoGradGuard no_grad;
  const bool quantized = heads.key_scales.defined();
  if (is_one_token(heads)) return attend_one_token(heads, rules);
  if (quantized) {
    const at::ScalarType type = heads.query.scalar_type();
    return attention_to_cache(
        {heads.query, dequantize_heads({heads.key, heads.key_scales}).to(type),
         dequantize_heads({heads.value, heads.value_scales}).to(type), heads.sinks},
        rules);
  }
  at::Tensor result = at::empty(heads.query.sizes(), heads.query.options());
  const std::int64_t tokens = heads.query.size(1);
  for (std::int64_t row = 0; row < heads.query.size(0); ++row) {
    const AttentionSpan span{row, 0, tokens, heads.key.size(1) - tokens};
    attend_by_blocks(span_heads(heads, span), keys_of(heads, span), rules,
                     grouped(result, span, heads.key.size(2)));
  }
  return result;
}

}  // namespace strait::kernels
