#include "launcher/worker/model_part.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <deque>
#include <utility>
#include <variant>

#include "kernels/cross_entropy.h"
#include "kernels/host_values.h"
#include "launcher/base/errors.h"
#include "launcher/worker/sampling.h"
#include "models/pass.h"

namespace strait::worker {
namespace {

at::Tensor token_tensor(const std::vector<std::int32_t>& tokens, std::int64_t rows) {
  const std::vector<std::int64_t> wide(tokens.begin(), tokens.end());
  return at::tensor(wide, at::kLong).view({rows, -1});
}

std::vector<std::vector<std::int64_t>> documents_of(const run::ScoreRows& request) {
  std::vector<std::vector<std::int64_t>> rows;
  auto next = request.document_lengths.begin();
  for (const std::int64_t count : request.documents_of_rows) {
    if (count < 0 || count > request.document_lengths.end() - next) {
      throw base::MessageError("rows with more documents than there are lengths");
    }
    rows.emplace_back(next, next + count);
    next += count;
  }
  // The length first, so that the product does not overflow.
  const auto tokens = static_cast<std::int64_t>(request.tokens.size());
  const std::int64_t length = request.padded_length;
  if (rows.empty() || length < 0 || length > tokens || std::ssize(rows) * length != tokens) {
    throw base::MessageError("rows whose tokens are not as many as their lengths say");
  }
  return rows;
}

double loss_sum(const run::ScoreRows& request, const at::Tensor& hidden,
                const kernels::Projection& projection) {
  std::vector<std::int64_t> positions;
  std::vector<std::int64_t> targets;
  for (std::size_t i = 0; i + 1 < request.target_spans.size(); i += 2) {
    // The first token of all has none before it that could predict it.
    if (request.target_spans[i] < 1 || request.target_spans[i + 1] > std::ssize(request.tokens)) {
      throw base::MessageError("targets outside of their rows");
    }
    for (std::int64_t t = request.target_spans[i]; t < request.target_spans[i + 1]; ++t) {
      positions.push_back(t - 1);
      targets.push_back(request.tokens[static_cast<std::size_t>(t)]);
    }
  }
  kernels::check_targets(targets, projection.weight.size(0));
  const at::Device device = projection.weight.device();
  const at::Tensor places = kernels::on_device(at::tensor(positions, at::kLong), device);
  return kernels::cross_entropy_loss(projection, hidden.flatten(0, 1).index_select(0, places),
                                     kernels::on_device(at::tensor(targets, at::kLong), device))
      .item<double>();
}

}  // namespace

ModelPart::ModelPart(std::unique_ptr<models::Model> model, at::Device device,
                     std::function<void()> layer_done)
    : model_(std::move(model)), device_(device), layer_done_(std::move(layer_done)) {}

at::Tensor ModelPart::run(at::Tensor values, const models::Pass& pass) {
  const at::NoGradGuard no_grad;
  // Tokens stay on the host, where the embedding checks them.
  if (values.is_floating_point()) values = kernels::on_device(values, device_);
  for (const auto& layer : model_->layers()) {
    values = layer->forward(values, pass);
    if (layer_done_) layer_done_();
  }
  return values;
}

at::Tensor ModelPart::extend(const run::ExtendSequence& request, at::Tensor values) {
  Sequence& sequence = sequences_.try_emplace(request.sequence, request.capacity).first->second;
  const auto past = static_cast<std::int64_t>(sequence.tokens.size());
  const auto count = static_cast<std::int64_t>(request.tokens.size());
  if (count == 0 || past + count > sequence.cache.capacity()) {
    throw base::MessageError("a sequence grows by no token, or beyond its capacity");
  }
  models::Pass pass = models::make_pass(sequence.cache, 1, count);
  // Layers without attention leave no length in the cache.
  pass.positions = at::arange(past, past + count, at::kLong).unsqueeze(0);
  sequence.tokens.insert(sequence.tokens.end(), request.tokens.begin(), request.tokens.end());
  if (!values.defined()) values = token_tensor(request.tokens, 1);
  return run(std::move(values), pass);
}

at::Tensor ModelPart::score(const run::ScoreRows& request, at::Tensor values) {
  const std::vector<std::vector<std::int64_t>> documents = documents_of(request);
  const models::Pass pass = models::make_pass(documents, request.padded_length);
  if (!values.defined()) {
    values = token_tensor(request.tokens, static_cast<std::int64_t>(documents.size()));
  }
  return run(std::move(values), pass);
}

at::Tensor ModelPart::forward(const run::InferenceRequest& request, const at::Tensor& values) {
  if (const auto* more = std::get_if<run::ExtendSequence>(&request)) {
    return extend(*more, values);
  }
  if (const auto* rows = std::get_if<run::ScoreRows>(&request)) return score(*rows, values);
  sequences_.erase(std::get<run::EndSequence>(request).sequence);
  return {};
}

std::optional<run::InferenceAnswer> ModelPart::answer(const run::InferenceRequest& request,
                                                      const at::Tensor& hidden) {
  const at::NoGradGuard no_grad;
  const kernels::Projection projection = kernels::detached(model_->head()->projection());
  if (const auto* rows = std::get_if<run::ScoreRows>(&request)) {
    return run::ScoredRows{rows->number, loss_sum(*rows, hidden, projection)};
  }
  const auto* more = std::get_if<run::ExtendSequence>(&request);
  if (more == nullptr) return std::nullopt;
  const at::Tensor logits =
      kernels::project_logits(projection, hidden.select(1, hidden.size(1) - 1)).squeeze(0).cpu();
  return run::ChosenToken{more->sequence, choose_token(logits, more->sampling, more->sequence,
                                                       sequences_.at(more->sequence).tokens)};
}

void answer_here(ModelPart& whole, run::InferenceClient& client) {
  const std::vector<run::InferenceRequest> first = client.begin();
  std::deque<run::InferenceRequest> requests(first.begin(), first.end());
  while (!requests.empty()) {
    const run::InferenceRequest request = std::move(requests.front());
    requests.pop_front();
    const auto answer = whole.answer(request, whole.forward(request, {}));
    if (!answer) continue;
    for (run::InferenceRequest& next : client.on_answer(*answer)) {
      requests.push_back(std::move(next));
    }
  }
}

}  // namespace strait::worker
