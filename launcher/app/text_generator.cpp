#include "launcher/app/text_generator.h"

#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>
#include <ATen/core/grad_mode.h>
#include <fmt/format.h>

#include <algorithm>
#include <vector>

#include "framework/store/byte_tokenizer.h"
#include "launcher/base/errors.h"
#include "models/key_value_cache.h"

namespace strait::app {
namespace {

// Logits of the token after `tokens`, which continue the cached prefix.
at::Tensor next_logits(models::Model& model, models::KeyValueCache& cache,
                       const std::vector<std::int64_t>& tokens) {
  const auto count = static_cast<std::int64_t>(tokens.size());
  const models::Pass pass = models::make_pass(cache, 1, count);
  at::Tensor values = at::tensor(tokens, at::kLong).view({1, count});
  for (const auto& layer : model.layers()) values = layer->forward(values, pass);
  const models::Head& head = *model.head();
  at::Tensor logits = at::linear(values.select(1, count - 1), head.projection()).squeeze(0);
  return head.bias().defined() ? logits + head.bias() : logits;
}

std::int64_t choose_token(const at::Tensor& logits, const GenerationOptions& options,
                          const at::Generator& generator) {
  if (options.temperature <= 0) return logits.argmax().item<std::int64_t>();
  const std::int64_t kept =
      options.top_k > 0 ? std::min(options.top_k, logits.size(0)) : logits.size(0);
  const auto [best, tokens] = logits.topk(kept);
  const at::Tensor weights = (best / options.temperature).softmax(0);
  return tokens[at::multinomial(weights, 1, false, generator).item<std::int64_t>()]
      .item<std::int64_t>();
}

}  // namespace

std::string generate_text(models::Model& model, std::int64_t positions, const std::string& prompt,
                          const GenerationOptions& options) {
  const std::vector<std::int32_t> encoded = store::ByteTokenizer::encode(prompt);
  const auto length = static_cast<std::int64_t>(encoded.size());
  if (length == 0 || length >= positions) {
    throw base::UserError(
        base::ExitCode::bad_input,
        fmt::format("the prompt has {} tokens; 1 to {} leave room for an answer in this "
                    "model",
                    length, positions - 1));
  }
  const at::NoGradGuard no_grad;
  const at::Generator generator = at::detail::createCPUGenerator(options.seed);
  models::KeyValueCache cache(positions);
  std::vector<std::int64_t> tokens(encoded.begin(), encoded.end());
  std::vector<std::int32_t> answer;
  const std::int64_t most = std::min(options.most_tokens, positions - length);
  while (static_cast<std::int64_t>(answer.size()) < most) {
    const std::int64_t next = choose_token(next_logits(model, cache, tokens), options, generator);
    if (next == store::ByteTokenizer::kEnd) break;
    answer.push_back(static_cast<std::int32_t>(next));
    tokens = {next};
  }
  return store::ByteTokenizer::decode(answer);
}

}  // namespace strait::app
