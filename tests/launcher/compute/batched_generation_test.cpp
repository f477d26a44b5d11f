#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <ATen/core/grad_mode.h>
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <random>

#include "kernels/random.h"
#include "launcher/compute/generation.h"
#include "launcher/worker/model_part.h"
#include "models/model_config.h"

namespace strait::compute {
namespace {

constexpr std::int64_t kVocabulary = 97;

struct Numbers : TextCoder {
  std::vector<std::int32_t> encode(const std::string& text) override {
    return {text.begin(), text.end()};
  }
  std::vector<std::int32_t> encode_chat(const data::Record& chat) override {
    return encode(chat.chat);
  }
  std::string decode(std::span<const std::int32_t> /*prompt*/,
                     std::span<const std::int32_t> answer) override {
    return fmt::format("{}", fmt::join(answer, " "));
  }
  bool is_end(std::int64_t token) const override { return token == 0; }
  std::optional<std::int32_t> control_token(const std::string& /*name*/) override { return {}; }
};

// Most widths are no multiples of a vector, so that rows begin anywhere in one.
const std::string kCommon =  // NOLINT(cert-err58-cpp): made of literals
    R"("vocab_size": 97, "max_position_embeddings": 700, "hidden_size": 30, "num_hidden_layers": 3,
       "num_attention_heads": 6, "num_key_value_heads": 2, "intermediate_size": 44)";
const std::string kYarn =  // NOLINT(cert-err58-cpp): made of literals
    R"("rope_parameters": {"rope_type": "yarn", "rope_theta": 500.0, "factor": 4.0,
       "original_max_position_embeddings": 16, "beta_fast": 4.0, "beta_slow": 0.5)";

std::vector<std::string> configurations() {
  const std::string latent = R"(, "num_key_value_heads": 6, "q_lora_rank": 10, "kv_lora_rank": 9,
       "qk_nope_head_dim": 6, "qk_rope_head_dim": 4, "v_head_dim": 5, "n_routed_experts": 8,
       "num_experts_per_tok": 3, "moe_intermediate_size": 14)";
  const std::string common = kCommon.substr(0, kCommon.find(R"("num_key_value_heads")"));
  const std::string rest = R"("intermediate_size": 44)";
  return {
      R"({"model_type": "gpt2", "vocab_size": 97, "n_positions": 700, "n_embd": 30, "n_layer": 3,
          "n_head": 3})",
      // An MLP of whole vectors, whose tokens are computed together.
      R"({"model_type": "gpt2", "vocab_size": 97, "n_positions": 700, "n_embd": 64, "n_layer": 3,
          "n_head": 4})",
      R"({"model_type": "llama", "head_dim": 8, )" + kCommon + "}",
      R"({"model_type": "mistral", "head_dim": 8, "sliding_window": 20, )" + kCommon + "}",
      R"({"model_type": "gemma2", "head_dim": 8, "sliding_window": 20, "query_pre_attn_scalar": 20,
          )" +
          kCommon + "}",
      R"({"model_type": "ministral3", "head_dim": 8, )" + kYarn +
          R"(, "llama_4_scaling_beta": 0.4}, )" + kCommon + "}",
      R"({"model_type": "gpt_oss", "head_dim": 8, "num_local_experts": 5, "num_experts_per_tok": 2,
          "sliding_window": 20, "swiglu_limit": 0.7, )" +
          kYarn + R"(, "truncate": false}, )" + kCommon + "}",
      R"({"model_type": "qwen3_5_moe_text", "head_dim": 16, "linear_num_key_heads": 2,
          "linear_num_value_heads": 6, "linear_key_head_dim": 8, "linear_value_head_dim": 6,
          "num_experts": 5, "num_experts_per_tok": 2, "moe_intermediate_size": 14,
          "shared_expert_intermediate_size": 10, "layer_types": ["linear_attention",
          "full_attention", "linear_attention"], )" +
          kCommon + "}",
      R"({"model_type": "deepseek_v3", "n_group": 4, "topk_group": 2, "first_k_dense_replace": 1, )" +
          common + rest + latent + "}",
  };
}

std::unique_ptr<worker::ModelPart> random_model(const std::string& text) {
  const models::ModelConfig config = models::parse_config(text, "config.json");
  const auto layers = static_cast<int>(models::describe(config).layers.size());
  auto model = models::make_model(config, {0, layers - 1}, at::kFloat, at::kCPU);
  const at::NoGradGuard no_grad;
  for (const models::Parameter& parameter : model->parameters()) {
    at::Generator generator =
        kernels::keyed_generator(kernels::hash_name(parameter.name), at::kCPU);
    const bool vector = parameter.value.dim() == 1;
    at::Tensor value = parameter.value;
    value.copy_(at::empty(value.sizes(), at::kFloat).normal_(vector ? 1 : 0, 0.2, generator));
  }
  return std::make_unique<worker::ModelPart>(std::move(model));
}

std::vector<Prompt> random_prompts(std::mt19937& random, std::size_t count) {
  std::vector<Prompt> prompts;
  for (std::size_t i = 0; i < count; ++i) {
    Prompt prompt{{}, fmt::format("f:{}", i + 1)};
    // Most are short; some have several chunks.
    const std::size_t length = random() % 4 == 0 ? 1 + random() % 400 : 1 + random() % 40;
    for (std::size_t t = 0; t < length; ++t) {
      prompt.tokens.push_back(static_cast<std::int32_t>(1 + random() % (kVocabulary - 1)));
    }
    prompts.push_back(std::move(prompt));
  }
  return prompts;
}

std::vector<Completion> complete(worker::ModelPart& model, const std::string& config,
                                 const std::vector<Prompt>& prompts,
                                 const cli::GenerationOptions& options, InFlight in_flight) {
  Numbers coder;
  Generation generation(prompts, models::describe(models::parse_config(config, "config.json")),
                        coder, options, in_flight);
  std::vector<Completion> done;
  generation.on_done([&](std::size_t, const Completion& one) { done.push_back(one); });
  worker::answer_here(model, generation);
  return done;
}

std::vector<double> logarithms(const Completion& completion) {
  std::vector<double> all;
  for (const run::TokenScore& score : completion.scores) all.push_back(score.logarithm);
  return all;
}

// The same model, whose blocks are read for every pass.
std::unique_ptr<worker::ModelPart> streamed_model(const std::string& text) {
  const std::shared_ptr<worker::ModelPart> whole = random_model(text);
  const auto read = [whole](const std::string& name) {
    for (const models::Parameter& one : whole->model().parameters()) {
      if (one.name == name) return one.value.detach().clone();
    }
    throw std::out_of_range(name);
  };
  const models::ModelConfig config = models::parse_config(text, "config.json");
  const auto layers = static_cast<int>(models::describe(config).layers.size());
  auto model = models::make_model(config, {0, layers - 1}, at::kFloat, at::kCPU);
  auto streamed = std::make_unique<worker::StreamedLayers>(*model, read, 0);
  EXPECT_EQ(streamed->streamed(), 3U);
  return std::make_unique<worker::ModelPart>(std::move(model), at::kCPU, std::function<void()>(),
                                             std::move(streamed));
}

// Every prompt gets the tokens that it gets alone, and every probability has the same bits, also
// where weights come block by block.
TEST(BatchedGeneration, GivesEveryPromptWhatItGetsAlone) {
  constexpr unsigned kSeeds = 2;
  const int threads = at::get_num_threads();
  for (const std::string& config : configurations()) {
    const auto model = random_model(config);
    const auto streamed = streamed_model(config);
    for (unsigned seed = 1; seed <= kSeeds; ++seed) {
      SCOPED_TRACE(fmt::format("seed {} of {}", seed, config));
      std::mt19937 random(seed);
      const std::vector<Prompt> prompts = random_prompts(random, 8);
      at::set_num_threads(static_cast<int>(1 + seed % 2));
      for (const bool sampled : {false, true}) {
        cli::GenerationOptions options;
        options.max_tokens = 10;
        options.sampling.seed = seed;
        options.sampling.temperature = sampled ? 1.2 : 0;
        options.sampling.repetition_penalty = sampled ? 1.1 : 1;
        options.score = !sampled;
        const std::int64_t bits = (seed % 2 == 0) == sampled ? 8 : 32;  // each with both
        const auto alone = complete(*model, config, prompts, options, {1, 1, bits});
        const InFlight several{1 + random() % 3, 3 + random() % 9, bits};
        const auto batched =
            complete(sampled ? *model : *streamed, config, prompts, options, several);
        ASSERT_EQ(batched.size(), prompts.size());
        for (std::size_t i = 0; i < prompts.size(); ++i) {
          EXPECT_EQ(batched[i].answer, alone[i].answer) << "prompt " << i;
          EXPECT_TRUE(logarithms(batched[i]) == logarithms(alone[i])) << "prompt " << i;
        }
      }
    }
  }
  at::set_num_threads(threads);
}

TEST(BatchedGeneration, ScoresAreProbabilities) {
  const std::string config = configurations()[1];
  const auto model = random_model(config);
  cli::GenerationOptions options;
  options.max_tokens = 3;
  options.score = true;
  const std::vector<std::int32_t> tokens{5, 9, 1, 33};
  const Completion whole = complete(*model, config, {{tokens, "a prompt"}}, options, {}).front();
  std::vector<std::int32_t> all = tokens;
  std::ranges::copy(whole.answer, std::back_inserter(all));
  ASSERT_EQ(whole.scores.size(), all.size() - 1);
  options.max_tokens = 1;
  for (std::size_t length = 1; length < all.size(); ++length) {
    const Prompt begin{{all.begin(), all.begin() + static_cast<std::ptrdiff_t>(length)},
                       "a prompt"};
    const Completion next = complete(*model, config, {begin}, options, {}).front();
    const run::TokenScore& score = whole.scores[length - 1];
    EXPECT_EQ(score.likeliest, next.answer.front());
    EXPECT_NEAR(score.likeliest_logarithm, next.scores.back().logarithm, 1e-4);
    EXPECT_LE(score.logarithm, score.likeliest_logarithm);
  }
}

}  // namespace
}  // namespace strait::compute
