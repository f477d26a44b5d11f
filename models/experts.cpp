#include "models/experts.h"

#include <ATen/ATen.h>

#include <limits>

#include "kernels/kernel_tensors.h"
#include "kernels/linear.h"
#include "kernels/row_product.h"
#include "models/batch_invariance.h"
#include "models/expert_load.h"

namespace strait::models {
namespace {

// Too small to change the sum of a softmax.
constexpr double kLeastSum = 1e-20;

// The numbers of the tokens in documents, of all rows in sequence. Undefined: there is no padding.
at::Tensor tokens_of_documents(const Pass& pass) {
  if (pass.cache != nullptr) return {};
  std::int64_t count = 0;
  for (const kernels::AttentionSpan& span : pass.documents) count += span.length;
  if (count == pass.positions.numel()) return {};
  std::vector<at::Tensor> parts{at::empty({0}, at::kLong)};
  parts.reserve(pass.documents.size() + 1);
  for (const kernels::AttentionSpan& span : pass.documents) {
    const std::int64_t begin = span.row * pass.positions.size(1) + span.begin;
    parts.push_back(at::arange(begin, begin + span.length, at::kLong));
  }
  return at::cat(parts);
}

}  // namespace

ExpertMlp::ExpertMlp(ParameterMaker& maker, int layer, const std::string& router,
                     std::int64_t hidden, const ExpertOptions& options,
                     const std::function<Mlp(std::int64_t)>& make_expert)
    : layer_(layer),
      options_(options),
      router_(maker.make(router + ".weight", {options.count, hidden})) {
  if (options.router_bias) router_bias_ = maker.make(router + ".bias", {options.count});
  if (options.choice_bias) choice_bias_ = maker.make_wide(router + kChoiceBias, {options.count});
  // The forecast counts the products of an expert for the share of tokens that choose it.
  maker.set_token_share(static_cast<double>(options.per_token) /
                        static_cast<double>(options.count));
  maker.set_joined(options.joined);
  experts_.reserve(static_cast<std::size_t>(options.count));
  for (std::int64_t expert = 0; expert < options.count; ++expert) {
    experts_.push_back(make_expert(expert));
    if (const auto matrices = experts_.back().matrices()) matrices_.push_back(*matrices);
  }
  // All or none: adapters, few bits or other types keep a layer from the joint products.
  if (matrices_.size() < experts_.size()) matrices_.clear();
  maker.set_token_share(1);
  maker.set_joined(false);
}

at::Tensor ExpertMlp::forward(const at::Tensor& input, const Pass& pass) const {
  const at::Tensor tokens = input.flatten(0, 1);
  at::Tensor chosen = tokens_of_documents(pass);
  if (!chosen.defined()) return compute(tokens, pass).view(input.sizes());
  chosen = kernels::on_device(chosen, input.device());
  // Padding would take part in the counts of experts, and so in their balance.
  const at::Tensor sums = compute(tokens.index_select(0, chosen), pass);
  return at::zeros_like(tokens).index_copy(0, chosen, sums).view(input.sizes());
}

at::Tensor ExpertMlp::scores(const at::Tensor& tokens, const Pass& pass) const {
  const at::Tensor input = options_.wide_router ? tokens.to(at::kFloat) : tokens;
  const at::Tensor logits =
      pass.cache == nullptr
          ? kernels::linear(input, router_, router_bias_, /*input_first=*/false)
          : kernels::row_linear(input, router_, router_bias_, /*input_first=*/false, nullptr);
  return by_token(pass, {logits}, [&](const auto& rows) {
    return options_.sigmoid ? rows[0].to(at::kFloat).sigmoid() : rows[0].softmax(1, at::kFloat);
  });
}

at::Tensor ExpertMlp::choose(const at::Tensor& scores) const {
  // The bias decides who is chosen. The weights come from the scores alone (DeepSeek V3).
  at::Tensor order = choice_bias_.defined() ? scores + choice_bias_.detach() : scores;
  if (options_.groups_per_token < options_.groups) {
    const at::Tensor groups = order.unflatten(1, {options_.groups, -1});
    // A group counts as much as its two best experts.
    const at::Tensor best = std::get<0>(groups.topk(2, 2)).sum(2);
    const at::Tensor kept = std::get<1>(best.topk(options_.groups_per_token, 1));
    const at::Tensor left_out = at::ones_like(best, at::kBool).scatter_(1, kept, false);
    order = groups.masked_fill(left_out.unsqueeze(2), -std::numeric_limits<double>::infinity())
                .flatten(1);
  }
  return std::get<1>(order.topk(options_.per_token, 1));
}

at::Tensor ExpertMlp::compute(const at::Tensor& tokens, const Pass& pass) const {
  at::Tensor all = scores(tokens, pass);
  const at::Tensor chosen = choose(all.detach());
  const kernels::ExpertRows rows = kernels::sort_by_expert(chosen, options_.count);
  all = balance(all, rows.counts, pass);
  at::Tensor weights = all.gather(1, chosen);
  // Sigmoids may all be zero.
  if (options_.normalise) {
    weights = by_token(pass, {weights}, [](const auto& token) {
      return token[0] / token[0].sum(1, /*keepdim=*/true).add(kLeastSum);
    });
  }
  if (options_.scale != 1) weights = weights * options_.scale;

  // Without tokens there is no result to join.
  if (rows.tokens.numel() == 0) return tokens;
  at::Tensor sums = experts_of(tokens, weights.to(tokens.scalar_type()), rows, pass);
  if (!shared_) return sums;
  const at::Tensor shared = shared_->mlp.forward(tokens, pass);
  if (!shared_->gate) return sums + shared;
  const at::Tensor gate = by_token(pass, {shared_->gate->forward(tokens, pass)},
                                   [](const auto& token) { return token[0].sigmoid(); });
  return sums + shared * gate;
}

at::Tensor ExpertMlp::experts_of(const at::Tensor& tokens, const at::Tensor& weights,
                                 const kernels::ExpertRows& rows, const Pass& pass) const {
  if (pass.cache == nullptr && !matrices_.empty() &&
      kernels::expert_products_take(tokens, matrices_)) {
    return kernels::expert_products(tokens, weights, rows, matrices_, experts_.front().form());
  }
  const std::vector<at::Tensor> inputs =
      kernels::gather_rows(tokens, rows).split_with_sizes(rows.counts);
  std::vector<at::Tensor> results;
  results.reserve(inputs.size());
  for (std::size_t expert = 0; expert < inputs.size(); ++expert) {
    if (rows.counts[expert] == 0) continue;
    results.push_back(experts_[expert].forward(inputs[expert], pass));
  }
  return kernels::combine_rows(at::cat(results), weights, rows);
}

at::Tensor ExpertMlp::balance(const at::Tensor& scores, const std::vector<std::int64_t>& counts,
                              const Pass& pass) const {
  const std::int64_t tokens = scores.size(0);
  if (pass.load == nullptr && (options_.balance == 0 || !pass.training)) return scores;
  if (tokens == 0) return scores;
  // The derivative of the loss by each of a token's probabilities.
  const auto slope_of = [&](const std::vector<std::int64_t>& rows, std::int64_t of_tokens) {
    const auto all = static_cast<double>(of_tokens);
    return kernels::on_device(at::tensor(rows, at::kFloat), scores.device()) *
           (static_cast<double>(options_.count) / (all * all) /
            static_cast<double>(options_.blocks) * pass.balance_share);
  };
  if (pass.load != nullptr) {
    at::Tensor shares = scores.detach();
    if (options_.sigmoid) shares = shares / shares.sum(1, /*keepdim=*/true).add(kLeastSum);
    pass.load->add(layer_, {counts, shares.sum(0), tokens, {}}, pass.slice.index > 0,
                   [&](const ExpertLoad::Part& part) {
                     return part.shares.dot(slope_of(part.counts, part.tokens));
                   });
  }
  if (options_.balance == 0 || !pass.training) return scores;
  // The loss of balance is linear in the probabilities once the counts are fixed, so its gradient
  // is added here and no loss has to reach the last stage.
  return kernels::with_slope(scores, slope_of(counts, tokens) * options_.balance);
}

}  // namespace strait::models
