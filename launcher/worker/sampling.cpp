#include "launcher/worker/sampling.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "kernels/random_key.h"

namespace strait::worker {
namespace {

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
  double kept = 0;
  for (std::size_t i = 0; i < count; ++i) kept += probabilities[i];
  const double least = sampling.min_p * probabilities[0] / kept;
  const auto likely = [&](double probability) { return probability / kept >= least; };
  const auto end = probabilities.begin() + static_cast<std::ptrdiff_t>(count);
  const auto first_out = std::find_if_not(probabilities.begin() + 1, end, likely);
  return static_cast<std::size_t>(first_out - probabilities.begin());
}

// In [0, 1).
double chance(const run::Sampling& sampling, std::int64_t sequence, std::size_t length) {
  const std::uint64_t key =
      kernels::mix_key({sampling.seed, static_cast<std::uint64_t>(sequence), length});
  constexpr int kMantissa = 53;
  return std::ldexp(static_cast<double>(key >> (64 - kMantissa)), -kMantissa);
}

}  // namespace

std::int64_t choose_token(const at::Tensor& logits, const run::Sampling& sampling,
                          std::int64_t sequence, std::span<const std::int32_t> tokens) {
  const at::Tensor seen = penalized(logits, sampling.repetition_penalty, tokens);
  if (sampling.temperature <= 0) return seen.argmax().item<std::int64_t>();
  const std::int64_t most = seen.size(0);
  const std::int64_t count = sampling.top_k > 0 ? std::min(sampling.top_k, most) : most;
  const auto [best, places] = seen.to(at::kDouble).div_(sampling.temperature).topk(count);
  const at::Tensor softmax = best.softmax(0).contiguous();
  const std::span<const double> probabilities(softmax.const_data_ptr<double>(),
                                              static_cast<std::size_t>(count));
  const std::size_t among = remaining(probabilities, sampling);
  double sum = 0;
  for (std::size_t i = 0; i < among; ++i) sum += probabilities[i];
  double left = chance(sampling, sequence, tokens.size()) * sum;
  std::size_t chosen = 0;
  while (chosen + 1 < among && left >= probabilities[chosen]) left -= probabilities[chosen++];
  return places[static_cast<std::int64_t>(chosen)].item<std::int64_t>();
}

}  // namespace strait::worker
