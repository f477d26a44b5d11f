#include "models/experts.h"

#include <ATen/ATen.h>

#include "kernels/expert_rows.h"
#include "kernels/kernel_tensors.h"
#include "kernels/linear.h"
#include "models/expert_load.h"

namespace strait::models {
namespace {

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
  maker.set_token_share(static_cast<double>(options.per_token) /
                        static_cast<double>(options.count));
  maker.allow_adapters(!options.joined);
  experts_.reserve(static_cast<std::size_t>(options.count));
  for (std::int64_t expert = 0; expert < options.count; ++expert) {
    experts_.push_back(make_expert(expert));
  }
  maker.set_token_share(1);
  maker.allow_adapters(true);
}

at::Tensor ExpertMlp::forward(const at::Tensor& input, const Pass& pass) const {
  const at::Tensor tokens = input.flatten(0, 1);
  at::Tensor chosen = tokens_of_documents(pass);
  if (!chosen.defined()) return compute(tokens, pass).view(input.sizes());
  chosen = kernels::on_device(chosen, input.device());
  const at::Tensor sums = compute(tokens.index_select(0, chosen), pass);
  return at::zeros_like(tokens).index_copy(0, chosen, sums).view(input.sizes());
}

at::Tensor ExpertMlp::compute(const at::Tensor& tokens, const Pass& pass) const {
  const at::Tensor logits = kernels::linear(tokens, router_, router_bias_, /*input_first=*/false);
  at::Tensor probabilities = logits.softmax(1, at::kFloat);
  const at::Tensor chosen = std::get<1>(probabilities.detach().topk(options_.per_token, 1));
  const kernels::ExpertRows rows = kernels::sort_by_expert(chosen, options_.count);
  probabilities = balance(probabilities, rows.counts, pass);
  at::Tensor weights = probabilities.gather(1, chosen);
  if (options_.normalise) weights = weights / weights.sum(1, /*keepdim=*/true);

  const std::vector<at::Tensor> inputs =
      kernels::gather_rows(tokens, rows).split_with_sizes(rows.counts);
  std::vector<at::Tensor> results;
  results.reserve(inputs.size());
  for (std::size_t expert = 0; expert < inputs.size(); ++expert) {
    if (rows.counts[expert] == 0) continue;
    results.push_back(experts_[expert].forward(inputs[expert], pass));
  }
  // Without tokens there is no result to join.
  if (results.empty()) return tokens;
  at::Tensor sums = kernels::combine_rows(at::cat(results), weights.to(tokens.scalar_type()), rows);
  if (!shared_) return sums;
  return sums + shared_->mlp.forward(tokens, pass) * shared_->gate.forward(tokens, pass).sigmoid();
}

at::Tensor ExpertMlp::balance(const at::Tensor& probabilities,
                              const std::vector<std::int64_t>& counts, const Pass& pass) const {
  const auto tokens = static_cast<double>(probabilities.size(0));
  if (pass.load == nullptr && (options_.balance == 0 || !pass.training)) return probabilities;
  if (tokens == 0) return probabilities;
  const at::Tensor rows =
      kernels::on_device(at::tensor(counts, at::kFloat), probabilities.device());
  // The derivative of the loss by each of a token's probabilities.
  const auto blocks = static_cast<double>(options_.blocks);
  const at::Tensor slope = rows * (static_cast<double>(options_.count) / (tokens * tokens) /
                                   blocks * pass.balance_share);
  if (pass.load != nullptr) {
    pass.load->add(layer_, counts, probabilities.detach().sum(0).dot(slope));
  }
  if (options_.balance == 0 || !pass.training) return probabilities;
  return kernels::with_slope(probabilities, slope * options_.balance);
}

}  // namespace strait::models
