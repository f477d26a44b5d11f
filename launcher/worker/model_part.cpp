#include "launcher/worker/model_part.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <cmath>
#include <deque>
#include <thread>

#include "kernels/kernel_tensors.h"
#include "kernels/parallel.h"
#include "kernels/random.h"
#include "kernels/row_product.h"
#include "launcher/base/errors.h"
#include "models/batch_invariance.h"
#include "models/pass.h"

namespace strait::worker {
namespace {

constexpr std::int64_t kScoredRows = 64;
// Too short for a user to notice.
constexpr std::chrono::milliseconds kPollEvery{5};

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

models::CacheFormat cache_format(const run::ExtendSequence& request) {
  if (request.cache_bits == 32) return models::CacheFormat::float32;
  if (request.cache_bits == 8) return models::CacheFormat::int8;
  throw base::MessageError("a sequence whose keys and values have neither 32 nor 8 bits");
}

// As Hugging Face defines it: a logit of a token that was seen moves towards less likely.
at::Tensor penalized(const at::Tensor& logits, double penalty,
                     std::span<const std::int32_t> tokens) {
  if (penalty == 1) return logits;
  std::vector<std::int64_t> seen(tokens.begin(), tokens.end());
  std::ranges::sort(seen);
  seen.erase(std::unique(seen.begin(), seen.end()), seen.end());
  const at::Tensor places = at::tensor(seen, at::kLong);
  const at::Tensor values = logits.index_select(0, places);
  const at::Tensor moved = at::where(values < 0, values * penalty, values / penalty);
  return logits.index_copy(0, places, moved);
}

// How many of the probabilities, the likeliest first, remain.
std::size_t remaining(std::span<const double> probabilities, const run::Sampling& sampling) {
  std::size_t count = probabilities.size();
  if (sampling.top_p < 1) {
    double sum = 0;
    for (std::size_t i = 0; i < count; ++i) {
      sum += probabilities[i];
      if (sum >= sampling.top_p) count = i + 1;
    }
  }
  if (sampling.min_p <= 0) return count;
  double kept = 0;
  for (std::size_t i = 0; i < count; ++i) kept += probabilities[i];
  const double least = sampling.min_p * probabilities[0] / kept;
  const auto likely = [&](double probability) { return probability / kept >= least; };
  const auto end = probabilities.begin() + static_cast<std::ptrdiff_t>(count);
  const auto first_out = std::find_if_not(probabilities.begin() + 1, end, likely);
  return static_cast<std::size_t>(first_out - probabilities.begin());
}

// In [0, 1).
double chance(const run::Sampling& sampling, std::int64_t number, std::size_t length) {
  const std::uint64_t key =
      kernels::mix_key({sampling.seed, static_cast<std::uint64_t>(number), length});
  constexpr int kMantissa = 53;
  return std::ldexp(static_cast<double>(key >> (64 - kMantissa)), -kMantissa);
}

run::TokenScore score_of(const at::Tensor& logits, std::int64_t token) {
  const at::Tensor logarithms = logits.log_softmax(0);
  const auto best = logarithms.argmax().item<std::int64_t>();
  return {logarithms[token].item<double>(), best, logarithms[best].item<double>()};
}

// On the host, each row the same with any number of others.
at::Tensor logits_of(const kernels::Projection& projection, const at::Tensor& rows) {
  at::Tensor logits =
      kernels::row_product(rows, projection.weight, {}, /*input_first=*/false).to(at::kFloat);
  if (projection.bias.defined()) logits.add_(projection.bias);
  if (projection.softcap > 0) {
    // libtorch computes the values that are left over after whole vectors by another formula.
    for (at::Tensor& row : logits.unbind()) {
      row.div_(projection.softcap).tanh_().mul_(projection.softcap);
    }
  }
  return logits.cpu();
}

// Of tokens, each predicted by its row.
std::vector<run::TokenScore> scores_of(const kernels::Projection& projection,
                                       const at::Tensor& rows,
                                       std::span<const std::int32_t> tokens) {
  std::vector<run::TokenScore> scores;
  if (tokens.empty()) return scores;
  std::size_t next = 0;
  // All logits of a long prompt would need more memory than the model.
  for (const at::Tensor& some : rows.split(kScoredRows)) {
    const at::Tensor logits = logits_of(projection, some);
    for (std::int64_t row = 0; row < some.size(0); ++row) {
      scores.push_back(score_of(logits[row], tokens[next++]));
    }
  }
  return scores;
}

}  // namespace

ModelPart::ModelPart(std::unique_ptr<models::Model> model, at::Device device,
                     std::function<void()> layer_done, std::unique_ptr<StreamedLayers> streamed)
    : model_(std::move(model)),
      device_(device),
      layer_done_(std::move(layer_done)),
      streamed_(std::move(streamed)) {}

at::Tensor ModelPart::run(at::Tensor values, const models::Pass& pass) {
  const at::NoGradGuard no_grad;
  // Tokens stay on the host, where the embedding checks them.
  if (values.is_floating_point()) values = kernels::on_device(values, device_);
  for (const auto& layer : model_->layers()) {
    if (streamed_) streamed_->need(layer->index());
    values = layer->forward(values, pass);
    if (layer_done_) layer_done_();
  }
  return values;
}

at::Tensor ModelPart::extend(const run::ExtendBatch& request, at::Tensor values) {
  for (const std::int64_t ended : request.ended) sequences_.erase(ended);
  if (request.sequences.empty()) return {};
  std::vector<models::KeyValueCache::Extension> extensions;
  std::vector<std::int32_t> tokens;
  for (const run::ExtendSequence& one : request.sequences) {
    Sequence& sequence =
        sequences_.try_emplace(one.sequence, one.capacity, cache_format(one)).first->second;
    if (sequence.cache.format() != cache_format(request.sequences.front())) {
      throw base::MessageError("sequences of a batch whose keys and values have different bits");
    }
    const auto count = std::ssize(one.tokens);
    if (count == 0 || std::ssize(sequence.tokens) + count > sequence.cache.capacity()) {
      throw base::MessageError("a sequence grows by no token, or beyond its capacity");
    }
    sequence.tokens.insert(sequence.tokens.end(), one.tokens.begin(), one.tokens.end());
    tokens.insert(tokens.end(), one.tokens.begin(), one.tokens.end());
    extensions.push_back({&sequence.cache, count});
  }
  models::KeyValueCache cache(std::move(extensions));
  const models::Pass pass = models::make_pass(cache, 1, std::ssize(tokens));
  if (!values.defined()) values = token_tensor(tokens, 1);
  return run(std::move(values), pass);
}

run::InferenceAnswer ModelPart::choose(const run::ExtendBatch& request, const at::Tensor& hidden) {
  const kernels::Projection projection = kernels::detached(model_->head()->projection());
  std::vector<std::int64_t> last_rows;
  std::vector<const run::ExtendSequence*> asked;
  std::int64_t end = 0;
  run::InferenceAnswer chosen{request.number};
  const at::Tensor rows = hidden.squeeze(0);
  for (const run::ExtendSequence& one : request.sequences) {
    const std::int64_t begin = std::exchange(end, end + std::ssize(one.tokens));
    if (!one.choose) continue;
    last_rows.push_back(end - 1);
    asked.push_back(&one);
    chosen.tokens.push_back({one.sequence, 0});
    if (one.score) {
      chosen.tokens.back().scores =
          scores_of(projection, rows.narrow(0, begin, std::ssize(one.tokens) - 1),
                    std::span(one.tokens).subspan(1));
    }
  }
  if (last_rows.empty()) return chosen;
  const at::Tensor places = kernels::on_device(at::tensor(last_rows, at::kLong), device_);
  const at::Tensor logits = logits_of(projection, rows.index_select(0, places));
  kernels::parallel_for(std::ssize(asked), 1, [&](std::int64_t first, std::int64_t last) {
    for (std::int64_t i = first; i < last; ++i) {
      const run::ExtendSequence& one = *asked[static_cast<std::size_t>(i)];
      run::ChosenToken& answer = chosen.tokens[static_cast<std::size_t>(i)];
      const at::Tensor own = logits[i];
      answer.token =
          choose_token(own, one.sampling, one.number, sequences_.at(one.sequence).tokens);
      if (one.score) answer.scores.push_back(score_of(own, answer.token));
    }
  });
  return chosen;
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
  if (const auto* rows = std::get_if<run::ScoreRows>(&request)) return score(*rows, values);
  return extend(std::get<run::ExtendBatch>(request), values);
}

std::optional<run::InferenceAnswer> ModelPart::answer(const run::InferenceRequest& request,
                                                      const at::Tensor& hidden) {
  const at::NoGradGuard no_grad;
  if (const auto* rows = std::get_if<run::ScoreRows>(&request)) {
    const kernels::Projection projection = kernels::detached(model_->head()->projection());
    return run::InferenceAnswer{rows->number, {}, loss_sum(*rows, hidden, projection)};
  }
  const auto& batch = std::get<run::ExtendBatch>(request);
  if (batch.sequences.empty()) return std::nullopt;
  return choose(batch, hidden);
}

void answer_here(ModelPart& whole, run::InferenceClient& client) {
  const std::vector<run::InferenceRequest> first = client.begin();
  std::deque<run::InferenceRequest> requests(first.begin(), first.end());
  while (!requests.empty() || !client.finished()) {
    for (run::InferenceRequest& more : client.poll()) requests.push_back(std::move(more));
    if (requests.empty()) {
      std::this_thread::sleep_for(kPollEvery);
      continue;
    }
    const run::InferenceRequest request = std::move(requests.front());
    requests.pop_front();
    const auto answer = whole.answer(request, whole.forward(request, {}));
    if (!answer) continue;
    for (run::InferenceRequest& next : client.on_answer(*answer)) {
      requests.push_back(std::move(next));
    }
  }
}

std::int64_t choose_token(const at::Tensor& logits, const run::Sampling& sampling,
                          std::int64_t number, std::span<const std::int32_t> tokens) {
  const at::Tensor seen = penalized(logits, sampling.repetition_penalty, tokens);
  if (sampling.temperature <= 0) return seen.argmax().item<std::int64_t>();
  const double drawn = chance(sampling, number, tokens.size());
  const std::int64_t most = seen.size(0);
  const std::int64_t count = sampling.top_k > 0 ? std::min(sampling.top_k, most) : most;
  // To sort a vocabulary takes longer than a small model does.
  if (count == most && sampling.top_p >= 1 && sampling.min_p <= 0) {
    const at::Tensor all = seen.contiguous();
    return kernels::cpu::draw_token({all.const_data_ptr<float>(), static_cast<std::size_t>(most)},
                                    sampling.temperature, drawn);
  }
  const auto [values, places] = seen.to(at::kDouble).div_(sampling.temperature).topk(count);
  const at::Tensor softmax = values.softmax(0).contiguous();
  const std::span<const double> probabilities(softmax.const_data_ptr<double>(),
                                              static_cast<std::size_t>(count));
  const std::size_t among = remaining(probabilities, sampling);
  double sum = 0;
  for (std::size_t i = 0; i < among; ++i) sum += probabilities[i];
  double left = drawn * sum;
  std::size_t chosen = 0;
  while (chosen + 1 < among && left >= probabilities[chosen]) left -= probabilities[chosen++];
  return places[static_cast<std::int64_t>(chosen)].item<std::int64_t>();
}

}  // namespace strait::worker
