// Tiny models of every family on the test device, held against the same on the CPU: forward, loss,
// backward and an update.
#include "models/families.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include "kernels/cross_entropy.h"
#include "kernels/random.h"
#include "kernels/weight_gradient_queue.h"
#include "models/model.h"
#include "tests/device/streams.h"
#include "tests/device/test_device.h"

namespace strait::models {
namespace {

constexpr std::int64_t kRows = 2;
constexpr std::int64_t kLength = 12;
constexpr std::int64_t kVocabulary = 29;

constexpr const char* kGpt2Fields = R"("n_positions": 16, "n_embd": 24, "n_layer": 2, "n_head": 3)";
constexpr const char* kLlamaFields =
    R"("max_position_embeddings": 16, "hidden_size": 48, "num_hidden_layers": 2,
       "num_attention_heads": 6, "num_key_value_heads": 2, "head_dim": 8, "intermediate_size": 20,
       "pad_token_id": 0, "sliding_window": 5)";

constexpr const char* kRotatedFields =
    R"("max_position_embeddings": 16, "hidden_size": 48, "num_hidden_layers": 2,
       "num_attention_heads": 6, "num_key_value_heads": 2, "head_dim": 8, "intermediate_size": 20,
       "pad_token_id": 0, "rope_parameters": {"rope_theta": 1e4, "llama_4_scaling_beta": 0.2,
       "original_max_position_embeddings": 4})";
// Every token goes to all experts: in bfloat16 a router may choose others.
constexpr const char* kExpertFields =
    R"("max_position_embeddings": 16, "hidden_size": 48, "num_hidden_layers": 2,
       "num_attention_heads": 6, "num_key_value_heads": 2, "head_dim": 8, "intermediate_size": 20,
       "pad_token_id": 0, "moe_intermediate_size": 12, "num_experts": 3, "num_experts_per_tok": 3)";

constexpr const char* kRecurrentFields =
    R"("max_position_embeddings": 16, "hidden_size": 48, "num_hidden_layers": 2,
       "num_attention_heads": 6, "num_key_value_heads": 2, "head_dim": 8, "intermediate_size": 20,
       "full_attention_interval": 2, "linear_num_key_heads": 2, "linear_num_value_heads": 4,
       "linear_key_head_dim": 8, "linear_value_head_dim": 8, "moe_intermediate_size": 12,
       "shared_expert_intermediate_size": 12, "num_experts": 3, "num_experts_per_tok": 3)";

constexpr const char* kSinkFields =
    R"("max_position_embeddings": 16, "hidden_size": 48, "num_hidden_layers": 2,
       "num_attention_heads": 6, "num_key_value_heads": 2, "head_dim": 8, "intermediate_size": 12,
       "num_local_experts": 3, "num_experts_per_tok": 3, "sliding_window": 5,
       "rope_parameters": {"rope_theta": 1e4})";

// Every token goes to all experts.
constexpr const char* kLatentFields =
    R"("max_position_embeddings": 16, "hidden_size": 48, "num_hidden_layers": 2,
       "num_attention_heads": 3, "num_key_value_heads": 3, "intermediate_size": 20,
       "q_lora_rank": 24, "kv_lora_rank": 16, "qk_nope_head_dim": 8, "qk_rope_head_dim": 8,
       "v_head_dim": 8, "n_routed_experts": 3, "num_experts_per_tok": 3, "n_group": 1,
       "topk_group": 1, "moe_intermediate_size": 12, "first_k_dense_replace": 1,
       "rope_parameters": {"rope_theta": 1e4, "llama_4_scaling_beta": 0.2,
       "original_max_position_embeddings": 4})";

const std::string kMistralText =
    fmt::format(R"("text_config": {{"model_type": "mistral4", "vocab_size": {}, {}}})", kVocabulary,
                kLatentFields);

const std::string kTextPart =
    fmt::format(R"("text_config": {{"vocab_size": {}, {}}})", kVocabulary, kRecurrentFields);

// Fields of config.json that make a family's model tiny.
const std::map<std::string, std::string> kFields{
    {"gpt2", kGpt2Fields},
    {"llama", kLlamaFields},
    {"mistral", kLlamaFields},
    {"qwen2", kLlamaFields},
    {"qwen3", kLlamaFields},
    {"phi3", kLlamaFields},
    {"gemma2", kLlamaFields},
    {"gemma3_text", kLlamaFields},
    {"gpt_neox", R"("max_position_embeddings": 16, "hidden_size": 24, "num_hidden_layers": 2,
                    "num_attention_heads": 3, "intermediate_size": 20, "rotary_pct": 0.5)"},
    {"gptj", R"("n_positions": 16, "n_embd": 24, "n_layer": 2, "n_head": 3, "rotary_dim": 4)"},
    {"ministral3", kRotatedFields},
    {"smollm3", kLlamaFields},
    {"olmo3", kLlamaFields},
    {"granite", kLlamaFields},
    {"qwen3_moe", kExpertFields},
    {"qwen3_5", kTextPart},
    {"qwen3_5_moe", kTextPart},
    {"qwen3_5_text", kRecurrentFields},
    {"qwen3_5_moe_text", kRecurrentFields},
    {"gpt_oss", kSinkFields},
    {"deepseek_v3", kLatentFields},
    {"glm4_moe_lite", kLatentFields},
    {"mistral4", kLatentFields},
    {"mistral3", kMistralText},
    {"mixtral", kExpertFields},
    {"olmoe", kExpertFields},
    {"opt", R"("max_position_embeddings": 16, "hidden_size": 24, "num_hidden_layers": 2,
               "num_attention_heads": 3, "ffn_dim": 20, "word_embed_proj_dim": 16,
               "do_layer_norm_before": false)"},
};

ModelConfig tiny_config(const std::string& family) {
  return parse_config(fmt::format(R"({{"model_type": "{}", "vocab_size": {}, {}}})", family,
                                  kVocabulary, kFields.at(family)),
                      "config.json");
}

void fill(const Model& model) {
  const at::NoGradGuard no_grad;
  for (const Parameter& parameter : model.parameters()) {
    const std::vector<std::int64_t> sizes = parameter.value.sizes().vec();
    assign(parameter,
           at::empty(sizes, at::kFloat)
               .normal_(0.1, 0.3,
                        kernels::keyed_generator(kernels::hash_name(parameter.name), at::kCPU)));
  }
}

at::Tensor tokens_of(std::uint64_t seed) {
  return at::empty({kRows, kLength}, at::kLong)
      .random_(1, kVocabulary, kernels::keyed_generator(seed, at::kCPU));
}

std::string name_of(const Parameter& parameter) {
  return parameter.name + (parameter.owned ? "" : " of the head");
}

struct Learned {
  std::unique_ptr<Model> model;
  std::map<std::string, at::Tensor> made;  // on the CPU: hidden states, loss, gradients
};

// Forward, loss and backward of a micro-batch.
Learned gradients_of(const ModelConfig& config, at::Device device, at::ScalarType type) {
  const LayerRange all{0, 3};
  Learned learned{make_model(config, all, type, device), {}};
  const auto& model = learned.model;
  fill(*model);
  Pass pass = make_pass({{kLength}, {5, 6}}, kLength);
  pass.seed = 3;
  pass.training = true;
  at::Tensor values = tokens_of(1);
  for (const auto& layer : model->layers()) values = layer->forward(values, pass);
  const at::Tensor hidden = values.detach().flatten(0, 1);
  const kernels::Projection& head = model->head()->projection();
  kernels::Projection gradient;
  if (head.weight.requires_grad()) gradient.weight = kernels::leaf_gradient(head.weight);
  if (head.bias.defined() && head.bias.requires_grad()) {
    gradient.bias = kernels::leaf_gradient(head.bias);
  }
  const kernels::CrossEntropyResult loss =
      kernels::cross_entropy(head, hidden, tokens_of(2).flatten().to(device), 1.0 / 24, gradient);
  torch::autograd::backward({values}, {loss.hidden_gradient.view(values.sizes())});
  learned.made = {{"hidden", hidden.cpu()}, {"loss", loss.loss_sum.cpu()}};
  for (const Parameter& parameter : model->parameters()) {
    if (!parameter.trained || !parameter.value.grad().defined()) continue;
    learned.made["gradient of " + name_of(parameter)] = parameter.value.grad().cpu();
  }
  return learned;
}

// One step of a micro-batch; everything that it made, on the CPU.
std::map<std::string, at::Tensor> step_of(const ModelConfig& config, at::Device device) {
  Learned learned = gradients_of(config, device, at::kFloat);
  const at::NoGradGuard no_grad;
  for (const Parameter& parameter : learned.model->parameters()) {
    if (!parameter.trained || !parameter.value.grad().defined()) continue;
    const at::Tensor value = parameter.value.detach();
    const at::Tensor slope = parameter.value.grad();
    const at::Tensor first = at::zeros_like(slope);
    const at::Tensor second = at::zeros_like(slope);
    const at::Tensor updates = at::ones({}, slope.options());
    at::_fused_adamw_({value}, {slope}, {first}, {second}, {}, {updates}, 1e-3, 0.9, 0.999, 0.1,
                      /*eps=*/0.1, false, false);
    learned.made["updated " + name_of(parameter)] = value.cpu().clone();
  }
  return learned.made;
}

void expect_close(const std::map<std::string, at::Tensor>& ours,
                  const std::map<std::string, at::Tensor>& expected) {
  ASSERT_EQ(ours.size(), expected.size());
  for (const auto& [name, value] : expected) {
    const double scale = std::max(1.0, value.abs().max().item<double>());
    EXPECT_LT((ours.at(name) - value).abs().max().item<double>() / scale, 2e-5) << name;
  }
}

TEST(FamiliesOnTestDevice, LearnWhatTheyLearnOnTheCpu) {
  for (const std::string& family : families().names()) {
    SCOPED_TRACE(family);
    ASSERT_TRUE(kFields.contains(family)) << "a new family: give it fields here";
    test_device::Streams::all().begin(7);
    expect_close(step_of(tiny_config(family), test_device::device(1)),
                 step_of(tiny_config(family), at::kCPU));
  }
}

// With flash attention, where it fits. Both are as far from float32 as bfloat16 makes them.
TEST(FamiliesOnTestDevice, HaveTheGradientsOfTheCpuInBfloat16) {
  for (const std::string& family : families().names()) {
    test_device::Streams::all().begin(3);
    const auto exact = gradients_of(tiny_config(family), at::kCPU, at::kFloat).made;
    const auto rounded = gradients_of(tiny_config(family), at::kCPU, at::kBFloat16).made;
    const auto ours = gradients_of(tiny_config(family), test_device::device(1), at::kBFloat16).made;
    double all = 0;
    double off = 0;
    double rounding = 0;
    for (const auto& [name, value] : exact) {
      const auto squared = [](const at::Tensor& values) {
        return values.to(at::kDouble).square().sum().item<double>();
      };
      all += squared(value);
      off += squared(ours.at(name).to(at::kFloat) - value);
      rounding += squared(rounded.at(name).to(at::kFloat) - value);
    }
    EXPECT_LT(off, 4 * rounding + 1e-12) << family;
    EXPECT_LT(off, 0.01 * all) << family;
  }
}

TEST(FamiliesOnTestDevice, LearnAdapters) {
  ModelConfig config = tiny_config("llama");
  auto lora = std::make_shared<Lora>();
  lora->dropout = 0.2;
  config.lora = lora;
  expect_close(step_of(config, test_device::device()), step_of(config, at::kCPU));
}

}  // namespace
}  // namespace strait::models
