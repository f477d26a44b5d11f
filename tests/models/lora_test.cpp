#include "models/lora.h"

#include <ATen/ATen.h>
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <memory>
#include <stdexcept>

#include "kernels/random.h"
#include "models/initialize.h"
#include "models/linear.h"
#include "models/model.h"
#include "models/peft_settings.h"
#include "models/tensor_names.h"
#include "tests/models/tiny_gpt2.h"
#include "tests/refusal_of.h"

namespace strait::models {
namespace {

using testing::HasSubstr;

constexpr const char* kQuery = "model.layers.3.self_attn.q_proj";

TEST(Lora, TargetsAreWholeLastPartsOfNames) {
  Lora lora;
  lora.targets = {"q_proj", "mlp.down"};
  EXPECT_TRUE(adapter_of(lora, kQuery));
  EXPECT_TRUE(adapter_of(lora, "h.0.mlp.down"));
  EXPECT_FALSE(adapter_of(lora, "h.0.down"));
  EXPECT_FALSE(adapter_of(lora, "h.0.k_q_proj"));
}

TEST(Lora, PatternMatchesWholeNames) {
  Lora lora;
  lora.pattern = R"(.*\.[24]\.self_attn\.(q|v)_proj)";
  EXPECT_TRUE(adapter_of(lora, "model.layers.2.self_attn.v_proj"));
  EXPECT_FALSE(adapter_of(lora, "model.layers.3.self_attn.v_proj"));
  EXPECT_FALSE(adapter_of(lora, "model.layers.2.self_attn.v_proj.more"));
}

TEST(Lora, BlocksLimitTargets) {
  Lora lora;
  lora.blocks = {3};
  EXPECT_TRUE(adapter_of(lora, kQuery));
  EXPECT_FALSE(adapter_of(lora, "model.layers.13.self_attn.q_proj"));
  EXPECT_FALSE(adapter_of(lora, "project_in"));
}

TEST(Lora, ScaleIsOfPatternAndRank) {
  Lora lora;
  lora.rank = 4;
  lora.alpha = 8;
  EXPECT_DOUBLE_EQ(adapter_of(lora, kQuery)->scale, 2);
  lora.rank_stabilized = true;
  EXPECT_DOUBLE_EQ(adapter_of(lora, kQuery)->scale, 4);
  lora.ranks = {{R"(layers\.3\..*)", 16}};
  lora.alphas = {{"q_proj", 2}};
  EXPECT_EQ(adapter_of(lora, kQuery)->rank, 16);
  EXPECT_DOUBLE_EQ(adapter_of(lora, kQuery)->scale, 0.5);
  EXPECT_EQ(adapter_of(lora, "model.layers.2.self_attn.q_proj")->rank, 4);
}

TEST(Lora, FileIsReadBack) {
  Lora lora;
  lora.rank = 3;
  lora.alpha = 0.5;
  lora.dropout = 0.25;
  lora.rank_stabilized = true;
  lora.decomposed = true;
  lora.targets = {"a", "b"};
  lora.ranks = {{"a", 2}};
  lora.alphas = {{"b", 7}};
  lora.blocks = {0, 5};
  lora.saved = {"lm_head"};
  EXPECT_EQ(parse_lora(lora_text(lora, "base", true), "adapter_config.json"), lora);
  lora.targets.clear();
  EXPECT_THROW(lora_text(lora, "base", true), std::logic_error) << "PEFT refuses it";
  lora.blocks.clear();
  EXPECT_EQ(parse_lora(lora_text(lora, "base", true), "adapter_config.json"), lora);
  lora.pattern = R"(.*\.c_(attn|fc))";
  EXPECT_EQ(parse_lora(lora_text(lora, "base", true), "adapter_config.json"), lora);
}

TEST(Lora, UnsupportedSettingIsNamed) {
  for (const auto& [field, value] :
       {std::pair{"bias", R"("all")"}, std::pair{"use_dora", "1"},
        std::pair{"layer_replication", "[[0, 2]]"}, std::pair{"target_parameters", R"("w")"},
        std::pair{"target_modules", R"("(")"}, std::pair{"rank_pattern", R"({"q": 0})"},
        std::pair{"peft_type", R"("IA3")"}, std::pair{"kasa_config", R"({"beta": 1})"},
        std::pair{"use_bdlora", R"({"nblocks": 2})"},
        std::pair{"init_lora_weights", R"("pissa_niter_4")"},
        std::pair{"init_lora_weights", R"("corda")"}, std::pair{"init_lora_weights", R"("olora")"},
        std::pair{"init_lora_weights", R"("loftq")"},
        std::pair{"init_lora_weights", R"("lora_ga")"}, std::pair{"init_lora_weights", "1"}}) {
    std::string text = R"({"peft_type": "LORA", "target_modules": ["q"], ")";
    text += std::string(field) + R"(": )" + value + "}";
    try {
      parse_lora(text, "adapter_config.json");
      FAIL() << text;
    } catch (const ConfigError& error) {
      EXPECT_THAT(error.what(), HasSubstr(std::string("adapter_config.json: ") + field));
    }
  }
}

TEST(Lora, InitializationThatKeepsTheModelIsIgnored) {
  const auto read = [](const std::string& value) {
    return parse_lora(R"({"peft_type": "LORA", "target_modules": ["q"])" + value + "}", "a.json");
  };
  const Lora without = read("");
  for (const char* value :
       {"null", "true", "false", R"("gaussian")", R"("eva")", R"("orthogonal")", R"("mica")"}) {
    EXPECT_EQ(read(std::string(R"(, "init_lora_weights": )") + value), without) << value;
  }
}

// A search that tries every way would take 2^60 steps here.
TEST(Lora, PatternsOfStrangersTakeBoundedTime) {
  const auto read = [](const std::string& pattern) {
    return parse_lora(R"({"peft_type": "LORA", "target_modules": ")" + pattern + "\"}", "a.json");
  };
  EXPECT_FALSE(adapter_of(read("(a*)*b"), std::string(60, 'a')));
  EXPECT_TRUE(adapter_of(read("(a*)*b"), std::string(60, 'a') + "b"));
  EXPECT_THROW(read("(a)\\\\1"), ConfigError) << "back reference";
  EXPECT_THROW(read(std::string(100'000, '(') + std::string(100'000, ')')), ConfigError);
}

ModelConfig adapted_gpt2(Lora lora, const std::string& more = "") {
  ModelConfig config = parse_config(
      R"({"model_type": "gpt2", "vocab_size": 61, "n_positions": 8, "n_embd": 8, "n_layer": 3,
          "n_head": 2)" +
          more + "}",
      "config.json");
  config.lora = std::make_shared<const Lora>(std::move(lora));
  return config;
}

TEST(AdaptedModel, OnlyAdaptersAndSavedModulesAreTrained) {
  Lora lora;
  lora.rank = 2;
  lora.targets = {"c_fc"};
  lora.blocks = {1, 2};
  lora.saved = {"lm_head"};
  const ModelConfig config = adapted_gpt2(lora, R"(, "tie_word_embeddings": false)");
  const ModelDescription model = describe(config);
  std::vector<std::string> names;
  for (const TensorShape& tensor : model.trained_tensors()) names.push_back(tensor.name);
  EXPECT_THAT(names,
              testing::ElementsAre("transformer.h.1.mlp.c_fc.lora_A.weight",
                                   "transformer.h.1.mlp.c_fc.lora_B.weight",
                                   "transformer.h.2.mlp.c_fc.lora_A.weight",
                                   "transformer.h.2.mlp.c_fc.lora_B.weight", "lm_head.weight"));
  EXPECT_EQ(model.trained_parameters(), 2 * 2 * (8 + 32) + 61 * 8);
  EXPECT_EQ(model.first_trained_layer(), 2);
  EXPECT_EQ(model.layers[1].backward_factor, 0);
  EXPECT_EQ(model.layers[1].saved_bytes_per_token, 0);
  EXPECT_EQ(model.layers[2].backward_factor, 1);
  EXPECT_EQ(model.layers[1].weight_gradient_flops_per_token, 0);
  EXPECT_EQ(model.layers[2].weight_gradient_flops_per_token, 2 * 2 * (8 + 32));
  EXPECT_EQ(model.layers[2].weight_gradient_bytes_per_token, 4 * (2 + 8 + 32 + 2));
  // What a file of the model itself has.
  EXPECT_EQ(model.tensors().size(), 4U + 1 + 3 * 12);
}

class StartOfAdapters : public testing::TestWithParam<bool> {};

TEST_P(StartOfAdapters, ChangesNothing) {
  Lora lora;
  lora.decomposed = GetParam();
  const ModelConfig base = adapted_gpt2(lora);
  ModelConfig plain = base;
  plain.lora = nullptr;
  const auto adapted_model = make_model(base, {0, 4}, at::kFloat, at::kCPU);
  const auto plain_model = make_model(plain, {0, 4}, at::kFloat, at::kCPU);
  initialize(*adapted_model, base, 5);
  initialize(*plain_model, plain, 5);
  bool drawn = false;
  for (const Parameter& parameter : adapted_model->parameters()) {
    EXPECT_EQ(parameter.value.requires_grad(), parameter.trained) << parameter.name;
    if (parameter.name.ends_with(kAdapterDown)) {
      const double bound = 1 / std::sqrt(static_cast<double>(parameter.value.size(1)));
      const double largest = parameter.value.abs().max().item<double>();
      EXPECT_LE(largest, bound);
      drawn = drawn || largest > 0;
    }
  }
  EXPECT_TRUE(drawn);
  const at::Tensor tokens = random_tokens(2, 6, 3);
  const Pass pass = make_pass({{6}, {6}}, 6);
  EXPECT_TRUE(
      at::equal(run_layers(*adapted_model, tokens, pass), run_layers(*plain_model, tokens, pass)));
}

INSTANTIATE_TEST_SUITE_P(LoraAndDora, StartOfAdapters, testing::Bool());

// What PEFT computes, by the operations of its definition and their own gradients.
at::Tensor defined_dora(const at::Tensor& input, const at::Tensor& kept, const at::Tensor& matrix,
                        const at::Tensor& bias, const Adapter& adapter) {
  const at::Tensor low = at::mm(adapter.up, adapter.down) * adapter.shape.scale;
  const at::Tensor norms = at::linalg_vector_norm((matrix + low).detach(), 2, at::IntArrayRef{1});
  const at::Tensor factor = adapter.norms / norms;
  return at::linear(input, matrix, bias) + (factor - 1) * at::linear(kept, matrix) +
         factor * at::linear(kept, low);
}

TEST(Dora, IsWhatPeftDefinesWithDropoutAndItsGradients) {
  Lora lora;
  lora.rank = 3;
  lora.dropout = 0.4;
  lora.decomposed = true;
  ParameterMaker maker(&lora, at::kFloat, at::kCPU);
  const Linear linear(maker, "q", {7, 5});
  const std::vector<Parameter>& made = maker.made();  // matrix, bias, down, up, norms
  ASSERT_EQ(made.size(), 5U);
  const at::Generator generator = kernels::keyed_generator(3, at::kCPU);
  for (const Parameter& one : made) one.value.detach().normal_(0.3, 1, generator);
  const at::Tensor input = at::rand({6, 7}, generator).requires_grad_(true);
  Pass pass = make_pass({{6}}, 6);
  pass.training = true;

  Adapter twin{made[2].value.detach().clone().requires_grad_(true),
               made[3].value.detach().clone().requires_grad_(true), *adapter_of(lora, "q"),
               made[4].value.detach().clone().requires_grad_(true)};
  const at::Tensor same_input = input.detach().clone().requires_grad_(true);
  kernels::DropoutKey key = pass.dropout_key(0, 0);
  key.site = kernels::hash_name("q");
  const at::Tensor kept = kernels::dropout(same_input, lora.dropout, key);
  const at::Tensor expected = defined_dora(same_input, kept, made[0].value, made[1].value, twin);
  const at::Tensor result = linear.forward(input, pass);
  EXPECT_TRUE(at::allclose(result, expected, 1e-5, 1e-5));

  const at::Tensor slope = at::rand({6, 5}, generator);
  result.backward(slope);
  expected.backward(slope);
  EXPECT_TRUE(at::allclose(input.grad(), same_input.grad(), 1e-4, 1e-5));
  EXPECT_TRUE(at::allclose(made[2].value.grad(), twin.down.grad(), 1e-4, 1e-5));
  EXPECT_TRUE(at::allclose(made[3].value.grad(), twin.up.grad(), 1e-4, 1e-5));
  EXPECT_TRUE(at::allclose(made[4].value.grad(), twin.norms.grad(), 1e-4, 1e-5));
}

// Values that a frozen matrix needs for its own gradient are not kept.
TEST(AdaptedModel, CountsWhatItsBackwardKeeps) {
  const auto saved = [](const Lora* lora) {
    ModelConfig config = adapted_gpt2(lora == nullptr ? Lora() : *lora);
    if (lora == nullptr) config.lora = nullptr;
    return describe(config).layers[2].saved_bytes_per_token;
  };
  constexpr std::int64_t kMasks = 16;  // of two dropouts
  // Inputs of norms, queries, keys, values, result, input of the activation; then inputs of the
  // matrices.
  constexpr std::int64_t kAlways = 2 * 8 + 4 * 8 + 32;
  EXPECT_EQ(saved(nullptr), (kAlways + 2 * 8 + 32) * 4 + kMasks);
  Lora lora;
  lora.rank = 2;
  EXPECT_EQ(saved(&lora), (kAlways + 2 * 8 + 32 + 4 * 2) * 4 + kMasks);
  lora.targets = {"c_fc"};
  EXPECT_EQ(saved(&lora), (kAlways + 8 + 2) * 4 + kMasks);
  lora.dropout = 0.1;
  EXPECT_EQ(saved(&lora), (kAlways + 8 + 2) * 4 + 8 + kMasks);
  lora.decomposed = true;
  EXPECT_EQ(saved(&lora), (kAlways + 8 + 2 + 32) * 4 + 8 + kMasks);
}

// The values of a matrix that is kept in few bits.
at::Tensor dequantized_values(const Parameter& parameter) {
  at::Tensor values = at::empty(parameter.value.sizes(), at::kFloat);
  dequantize_matrix(*parameter.quantized, values);
  return values;
}

TEST(QuantizedModel, KeepsMatricesOfBlocksOnlyInFewBits) {
  Lora lora;
  lora.rank = 2;
  lora.targets = {"c_fc"};
  lora.saved = {"h.1.attn.c_proj"};
  lora.quantization = kernels::MatrixFormat::nf4;
  const ModelConfig config = adapted_gpt2(lora);
  const ModelDescription model = describe(config);
  EXPECT_EQ(model.layers[0].quantized.parameters, 0);
  EXPECT_EQ(model.layers[4].quantized.parameters, 0);
  // c_attn, c_proj, c_fc and c_proj of 8 · 8 values times 3, 1, 4 and 4.
  EXPECT_EQ(model.layers[1].quantized.parameters, 12 * 64);
  EXPECT_EQ(model.layers[1].quantized.bytes, 12 * 64 / 2 + 12 * 4);
  EXPECT_EQ(model.layers[1].quantized.largest_matrix, 4 * 64);
  EXPECT_EQ(model.layers[2].quantized.parameters, 11 * 64);  // one is trained whole
  const auto made = make_model(config, {1, 3}, at::kFloat, at::kCPU);
  for (const Parameter& parameter : made->parameters()) {
    const bool matrix = parameter.name.ends_with(".weight") && parameter.value.dim() == 2;
    EXPECT_EQ(parameter.quantized.has_value(), matrix && !parameter.trained) << parameter.name;
    if (parameter.quantized) {
      EXPECT_TRUE(parameter.value.is_meta()) << parameter.name;
    }
  }
}

TEST(QuantizedModel, ComputesWithItsDequantisedWeights) {
  for (const auto format :
       {kernels::MatrixFormat::int8, kernels::MatrixFormat::int4, kernels::MatrixFormat::nf4}) {
    Lora lora;
    const ModelConfig plain = adapted_gpt2(lora);
    lora.quantization = format;
    const ModelConfig config = adapted_gpt2(lora);
    const auto small = make_model(config, {0, 4}, at::kFloat, at::kCPU);
    const auto large = make_model(plain, {0, 4}, at::kFloat, at::kCPU);
    initialize(*small, config, 5);
    initialize(*large, plain, 5);
    const auto expected = large->parameters();
    const auto parameters = small->parameters();
    bool changed = false;
    for (std::size_t i = 0; i < parameters.size(); ++i) {
      ASSERT_EQ(parameters[i].name, expected[i].name);
      if (!parameters[i].quantized) continue;
      const at::Tensor values = dequantized_values(parameters[i]);
      changed = changed || !at::equal(values, expected[i].value);
      assign(expected[i], values);
    }
    EXPECT_TRUE(changed);
    const at::Tensor tokens = random_tokens(2, 6, 3);
    const Pass pass = make_pass({{6}, {6}}, 6);
    EXPECT_TRUE(at::equal(run_layers(*small, tokens, pass), run_layers(*large, tokens, pass)));
  }
}

TEST(QuantizedModel, NamesTheTensorThatCannotBeQuantised) {
  Lora lora;
  lora.quantization = kernels::MatrixFormat::int4;
  const auto model = make_model(adapted_gpt2(lora), {1, 1}, at::kFloat, at::kCPU);
  for (const Parameter& parameter : model->parameters()) {
    if (!parameter.quantized) continue;
    at::Tensor values = at::ones(parameter.value.sizes(), at::kDouble);
    assign(parameter, values);
    values[1][2] = std::nan("");
    try {
      assign(parameter, values);
      ADD_FAILURE() << "not refused";
    } catch (const InputError& error) {
      EXPECT_THAT(error.what(), HasSubstr(parameter.name));
    }
  }
}

TEST(AdaptedModel, PatternsThatContradictAreRefused) {
  const auto refusal = [](const Lora& lora) -> std::string {
    try {
      describe(adapted_gpt2(lora));
    } catch (const ConfigError& error) {
      return error.what();
    }
    return "";
  };
  Lora lora;
  lora.targets = {"c_attn"};
  // The second is no matrix that is adapted.
  lora.ranks = {{"c_attn", 2}, {"c_fc", 3}, {"(c_fc|x)", 4}};
  lora.alphas = {{R"(h\.1\..*)", 4}, {"c_attn", 2}};
  EXPECT_THAT(refusal(lora), HasSubstr("LoRA's alpha_pattern gives transformer.h.1.attn.c_attn two "
                                       "values, 2 and 4"));
  lora.alphas.at("c_attn") = 4;
  EXPECT_EQ(refusal(lora), "") << "the same value";
  lora.ranks = {{".*", 1}, {"c_attn", 2}};
  EXPECT_THAT(refusal(lora), HasSubstr("LoRA's rank_pattern gives transformer.h.0.attn.c_attn two "
                                       "values, 1 and 2"));
}

TEST(AdaptedModel, PatternsThatFitNoAdapterAreFound) {
  Lora lora;
  lora.targets = {"c_attn"};
  const ModelDescription model = describe(adapted_gpt2(lora));
  lora.ranks = {{"c_attn", 2}, {R"(h\.1\..*)", 2}};
  EXPECT_NO_THROW(check_pattern_use(model, lora));
  lora.alphas = {{"c_fc", 3}};
  EXPECT_THAT([&] { check_pattern_use(model, lora); },
              testing::ThrowsMessage<ConfigError>(testing::AllOf(
                  HasSubstr("LoRA's alpha_pattern \"c_fc\" fits no matrix that has an adapter"),
                  HasSubstr("are called c_attn, c_fc, c_proj"))));
}

std::vector<TensorShape> trained(ModelConfig config, const Lora& lora) {
  config.lora = std::make_shared<const Lora>(lora);
  return describe(config).trained_tensors();
}

// The settings as PEFT and this library read them back.
Lora exported(const ModelConfig& config) {
  const std::string text = lora_text(lora_for_peft(config), "base", true);
  return parse_lora(text, "adapter_config.json");
}

TEST(AdaptedModel, ExportOfBlocksNamesTheirMatrices) {
  for (const char* pattern : {"", R"(.*\.c_(attn|fc))"}) {
    Lora lora;
    lora.pattern = pattern;
    lora.blocks = {1, 2};
    const ModelConfig config = adapted_gpt2(lora);
    const Lora read = exported(config);
    EXPECT_TRUE(read.blocks.empty());
    EXPECT_THAT(read.targets, testing::Contains("transformer.h.1.attn.c_attn"));
    EXPECT_EQ(read.targets.size(), *pattern == '\0' ? 2U * 4 : 2U * 2);
    EXPECT_EQ(trained(config, read), describe(config).trained_tensors());
  }
  Lora lora;
  lora.targets = {"c_fc"};
  lora.blocks = {1};
  EXPECT_EQ(exported(adapted_gpt2(lora)), lora) << "a list and blocks are what PEFT reads";
}

// Of the module that transformers has renamed, whose files have kept the name.
TEST(AdaptedModel, SavedHeadHasTheNamesOfFileAndModule) {
  ModelConfig config = parse_config(
      R"({"model_type": "gpt_neox", "vocab_size": 61, "hidden_size": 8, "num_hidden_layers": 2,
          "num_attention_heads": 2, "intermediate_size": 16, "rotary_pct": 1.0})",
      "config.json");
  Lora lora;
  lora.targets = {"dense"};
  for (const char* name : {"embed_out", "lm_head"}) {
    lora.saved = {name};
    config.lora = std::make_shared<const Lora>(with_own_names(config, lora));
    EXPECT_EQ(describe(config).trained_tensors().back().name, "embed_out.weight");
    EXPECT_THAT(exported(config).saved, testing::ElementsAre("lm_head"));
  }
  EXPECT_EQ(adapter_files(config).back().name, "base_model.model.lm_head.weight");
  EXPECT_EQ(adapter_files(config).front().name,
            "base_model.model.gpt_neox.layers.0.attention.dense.lora_A.weight");

  for (const char* head : {"embed_out.weight", "lm_head.weight"}) {
    std::vector<TensorShape> file = describe(config).trained_tensors();
    file.back().name = head;
    for (TensorShape& tensor : file) tensor.name = "base_model.model." + tensor.name;
    EXPECT_EQ(match_adapter_tensors(config, file, "f").at("embed_out.weight").in_file,
              file.back().name);
    file.push_back(file.back());
    EXPECT_THROW(match_adapter_tensors(config, file, "f"), TensorMismatch);
  }
}

ModelConfig tiny_gpt_oss(const Lora& lora) {
  ModelConfig config = parse_config(
      R"({"model_type": "gpt_oss", "vocab_size": 61, "hidden_size": 8, "num_hidden_layers": 2,
          "num_attention_heads": 2, "num_key_value_heads": 1, "head_dim": 4,
          "intermediate_size": 6, "num_local_experts": 3, "num_experts_per_tok": 2,
          "rope_parameters": {"rope_type": "default", "rope_theta": 1e4}})",
      "config.json");
  config.lora = std::make_shared<const Lora>(lora);
  return config;
}

TEST(Dora, IsRefusedForTargetParameters) {
  Lora lora;
  lora.decomposed = true;
  lora.targets = {"q_proj"};
  EXPECT_NO_THROW(describe(tiny_gpt_oss(lora)));
  lora.parameters = {"experts.down_proj"};
  EXPECT_THAT(
      [&] { describe(tiny_gpt_oss(lora)); },
      testing::ThrowsMessage<ConfigError>(HasSubstr("DoRA is of matrices that have names")));
}

TEST(AdaptersOfAllExperts, AreOneTensorInFiles) {
  Lora lora;
  lora.rank = 2;
  lora.pattern = kNoMatrix;
  lora.parameters = {"experts.gate_up_proj", "1.mlp.experts.down_proj"};
  lora.ranks = {{R"(.*\.1\.mlp\.experts\.down_proj)", 5}};
  const ModelConfig config = tiny_gpt_oss(lora);
  const std::string block = "base_model.model.model.layers.";
  std::map<std::string, std::vector<std::int64_t>> shapes;
  std::vector<TensorShape> file;
  for (const FileTensor& tensor : adapter_files(config)) {
    EXPECT_EQ(tensor.parts.size(), 3U);
    shapes[tensor.name] = tensor.shape;
    file.push_back({tensor.name, tensor.shape});
  }
  // The layer of down_proj is around that of gate_up_proj, where there is one.
  EXPECT_THAT(
      shapes,
      testing::UnorderedElementsAre(
          testing::Pair(block + "0.mlp.experts.lora_A.weight", testing::ElementsAre(3 * 2, 8)),
          testing::Pair(block + "0.mlp.experts.lora_B.weight", testing::ElementsAre(12, 2 * 3)),
          testing::Pair(block + "1.mlp.experts.base_layer.lora_A.weight",
                        testing::ElementsAre(3 * 2, 8)),
          testing::Pair(block + "1.mlp.experts.base_layer.lora_B.weight",
                        testing::ElementsAre(12, 2 * 3)),
          testing::Pair(block + "1.mlp.experts.lora_A.weight", testing::ElementsAre(3 * 5, 6)),
          testing::Pair(block + "1.mlp.experts.lora_B.weight", testing::ElementsAre(8, 5 * 3))));
  const auto places = match_adapter_tensors(config, file, "f");
  const AdapterTensor& last = places.at("model.layers.1.mlp.experts.2.down_proj.lora_B.weight");
  EXPECT_EQ(last.in_file, block + "1.mlp.experts.lora_B.weight");
  EXPECT_EQ(std::pair(last.part, last.parts), std::pair(std::int64_t{2}, std::int64_t{3}));
  EXPECT_NO_THROW(check_pattern_use(describe(config), lora));
  EXPECT_EQ(exported(config), lora);
  file.back().shape.back() -= 1;
  EXPECT_THROW(match_adapter_tensors(config, file, "f"), TensorMismatch);
}

TEST(AdaptersOfAllExperts, OfSomeBlocksHaveWholeNames) {
  Lora lora;
  lora.targets = {"q_proj"};
  lora.parameters = {"experts.down_proj"};
  lora.blocks = {1};
  lora.dropout = 0.1;
  const Lora read = exported(tiny_gpt_oss(lora));
  EXPECT_THAT(read.parameters, testing::ElementsAre("model.layers.1.mlp.experts.down_proj"));
  EXPECT_THAT(read.targets, testing::ElementsAre("model.layers.1.self_attn.q_proj"));
  EXPECT_TRUE(read.blocks.empty());
  EXPECT_EQ(read.dropout, 0) << "PEFT has none there";
  EXPECT_EQ(describe(tiny_gpt_oss(read)).trained_tensors(),
            describe(tiny_gpt_oss(lora)).trained_tensors());
  lora.parameters.clear();
  lora.targets = {"up_proj"};
  EXPECT_TRUE(adapter_of(lora, "model.layers.1.mlp.experts.0.up_proj"));
  EXPECT_FALSE(adapter_of(lora, "model.layers.0.mlp.experts.1.up_proj")) << "an expert's number";
}

TEST(AdaptersOfAllExperts, OtherNamesAreRefused) {
  const auto refusal = [](const ModelConfig& config) {
    return refusal_of<ConfigError>([&] { describe(config); });
  };
  Lora lora;
  lora.parameters = {"mlp.router.weight"};
  EXPECT_THAT(refusal(tiny_gpt_oss(lora)), HasSubstr("\"mlp.router.weight\" is not the tensor of"));
  lora.parameters = {"experts.down_proj"};
  EXPECT_THAT(refusal(adapted_gpt2(lora)), HasSubstr("name matrices in targets"));
  lora.parameters = {};
  EXPECT_NO_THROW(describe(tiny_gpt_oss(lora))) << "attention alone, as PEFT has it";
  lora.targets = {"down_proj"};
  EXPECT_THAT(refusal(tiny_gpt_oss(lora)), HasSubstr("which target_parameters names"));
  EXPECT_THROW(parse_lora(R"({"peft_type": "LORA", "target_modules": ["q_proj"],
      "target_parameters": ["experts.down_proj"], "layers_to_transform": [0]})",
                          "f"),
               ConfigError);
}

// A tiny model of a family whose experts PEFT knows by other names than the files.
ModelConfig tiny_with_experts(const char* family, const Lora& lora) {
  ModelConfig config =
      parse_config(fmt::format(R"({{"model_type": "{}", "vocab_size": 61, "hidden_size": 8,
          "num_hidden_layers": 2, "num_attention_heads": 2, "num_key_value_heads": 2,
          "head_dim": 4, "intermediate_size": 6, "moe_intermediate_size": 6, "num_experts": 2,
          "n_routed_experts": 4, "n_group": 2, "topk_group": 2, "num_experts_per_tok": 2,
          "first_k_dense_replace": 1, "q_lora_rank": 4, "kv_lora_rank": 4, "qk_nope_head_dim": 2,
          "qk_rope_head_dim": 2, "v_head_dim": 4, "linear_num_key_heads": 2,
          "linear_num_value_heads": 2, "linear_key_head_dim": 4, "linear_value_head_dim": 4,
          "partial_rotary_factor": 1.0, "layer_types": ["full_attention", "full_attention"],
          "shared_expert_intermediate_size": 6}})",
                               family),
                   "config.json");
  config.lora = std::make_shared<const Lora>(lora);
  return config;
}

// What this library makes of an export.
ModelConfig read_back(const ModelConfig& config) {
  ModelConfig read = config;
  read.lora = nullptr;
  read.lora = std::make_shared<const Lora>(lora_from_peft(read, exported(config)));
  return read;
}

void expect_same_adapters(const ModelConfig& read, const ModelConfig& config) {
  EXPECT_EQ(describe(read).trained_tensors(), describe(config).trained_tensors());
  for (const TensorShape& tensor : describe(config).trained_tensors()) {
    if (!tensor.name.ends_with(kAdapterDown)) continue;
    const std::string matrix = tensor.name.substr(0, tensor.name.rfind(kAdapterDown));
    EXPECT_EQ(adapter_of(*read.lora, matrix)->scale, adapter_of(*config.lora, matrix)->scale);
  }
}

// PEFT takes every target that is called as a matrix of experts for those of all experts.
TEST(AdaptersForPeft, OfSharedExpertsAndDenseBlocksAreParameters) {
  Lora lora;
  lora.alphas = {{"up_proj", 3}};
  const ModelConfig config = tiny_with_experts("deepseek_v3", lora);
  const Lora read = exported(config);
  EXPECT_THAT(read.parameters,
              testing::UnorderedElementsAre(
                  "mlp.gate_proj.weight", "mlp.up_proj.weight", "mlp.down_proj.weight",
                  "mlp.shared_experts.gate_proj.weight", "mlp.shared_experts.up_proj.weight",
                  "mlp.shared_experts.down_proj.weight"));
  EXPECT_THAT(read.targets, testing::IsSupersetOf({"self_attn.o_proj", "mlp.experts.3.up_proj"}));
  EXPECT_EQ(read.targets.size(), 5U + 4 * 3);
  EXPECT_EQ(read.alphas.at(R"((up_proj)\.weight)"), 3);
  expect_same_adapters(read_back(config), config);
}

TEST(AdaptersForPeft, OfRecurrentModelsWithExpertsNameTheirTensors) {
  Lora lora;
  const ModelConfig config = tiny_with_experts("qwen3_5_moe_text", lora);
  const Lora read = exported(config);
  EXPECT_THAT(read.parameters,
              testing::UnorderedElementsAre("mlp.experts.down_proj", "mlp.experts.gate_up_proj"));
  EXPECT_EQ(read.ranks.at("experts.gate_up_proj"), 2 * lora.rank);
  EXPECT_EQ(read.alphas.at("experts.gate_up_proj"), 2 * lora.alpha);
  EXPECT_THAT(read.targets,
              testing::IsSupersetOf({"mlp.shared_expert.up_proj", "mlp.experts.1.up_proj"}));
  expect_same_adapters(read_back(config), config);
  EXPECT_EQ(unread_by_peft(config), "");
}

// PEFT doubles rank and alpha of gate and up, but rsLoRA divides by the root of the rank.
TEST(AdaptersForPeft, OfExpertsKeepTheScaleOfRslora) {
  Lora lora;
  lora.rank_stabilized = true;
  const ModelConfig config = tiny_with_experts("qwen3_moe", lora);
  EXPECT_DOUBLE_EQ(exported(config).alphas.at("experts.gate_up_proj"), std::sqrt(2) * lora.alpha);
  expect_same_adapters(read_back(config), config);
}

TEST(AdaptersForPeft, ThatItDoesNotReadAreNamed) {
  Lora lora;
  lora.targets = {"up_proj"};
  EXPECT_THAT(unread_by_peft(tiny_with_experts("qwen3_moe", lora)), HasSubstr("both gate and up"));
  lora.targets = {"up_proj", "gate_proj"};
  EXPECT_EQ(unread_by_peft(tiny_with_experts("qwen3_moe", lora)), "");
  lora.alphas = {{"up_proj", 3}};
  EXPECT_THAT(unread_by_peft(tiny_with_experts("qwen3_moe", lora)), HasSubstr("one alpha"));
  lora.alphas.clear();
  lora.decomposed = true;
  EXPECT_EQ(unread_by_peft(tiny_with_experts("qwen3_moe", lora)), "loads no DoRA of experts");
}

// PEFT saves "norm" of every module whose name ends so.
TEST(AdaptersForPeft, SavedModulesHaveNamesThatFitNoOthers) {
  Lora lora;
  lora.targets = {"q_proj"};
  lora.saved = {"norm", "lm_head"};
  const ModelConfig config = tiny_with_experts("llama", lora);
  const Lora read = exported(config);
  EXPECT_THAT(read.saved, testing::ElementsAre("model.norm", "lm_head"));
  expect_same_adapters(read_back(config), config);
  ModelConfig plain = config;
  plain.lora = nullptr;
  EXPECT_THAT(lora_from_peft(plain, lora).saved,
              testing::UnorderedElementsAre(
                  "lm_head", "model.norm", "model.layers.0.input_layernorm",
                  "model.layers.0.post_attention_layernorm", "model.layers.1.input_layernorm",
                  "model.layers.1.post_attention_layernorm"));
}

TEST(AdaptersForPeft, RoutersOfMixtralHaveTheLibrarysName) {
  Lora lora;
  lora.targets = {"q_proj"};
  lora.saved = {"block_sparse_moe.gate"};
  const ModelConfig config = tiny_with_experts("mixtral", lora);
  EXPECT_THAT(exported(config).saved, testing::ElementsAre("mlp.gate"));
  std::vector<std::string> names;
  for (const FileTensor& tensor : adapter_files(config)) names.push_back(tensor.name);
  EXPECT_THAT(names, testing::Contains("base_model.model.model.layers.0.mlp.gate.weight"));
  expect_same_adapters(read_back(config), config);
}

// The library has the text part under other names, in adapters that are made over all of it.
TEST(AdaptersForPeft, OfATextPartHaveTheNamesOfTheWhole) {
  ModelConfig config = parse_config(
      R"({"model_type": "qwen3_5", "text_config": {"vocab_size": 61, "hidden_size": 8,
          "num_hidden_layers": 2, "num_attention_heads": 2, "num_key_value_heads": 2,
          "head_dim": 8, "intermediate_size": 6,
          "layer_types": ["full_attention", "full_attention"]}})",
      "config.json");
  Lora lora;
  lora.pattern = R"(model\.language_model\.layers\.1\..*\.(q_proj|up_proj))";
  lora.alphas = {{R"(language_model\.layers\.1\.self_attn\.q_proj)", 3}};
  lora.saved = {"language_model.norm"};
  lora = lora_from_peft(config, lora);
  config.lora = std::make_shared<const Lora>(lora);
  EXPECT_EQ(adapter_of(lora, "model.layers.1.self_attn.q_proj")->scale, 3.0 / 8);
  EXPECT_EQ(adapter_files(config).front().name,
            "base_model.model.model.language_model.layers.1.self_attn.q_proj.lora_A.weight");
  const Lora read = exported(config);
  EXPECT_THAT(read.targets,
              testing::UnorderedElementsAre("model.language_model.layers.1.self_attn.q_proj",
                                            "model.language_model.layers.1.mlp.up_proj"));
  EXPECT_THAT(read.saved, testing::ElementsAre("model.language_model.norm"));
  expect_same_adapters(read_back(config), config);
}

TEST(LoraFile, NameOfTheListOfBlocksMayBeThere) {
  const auto text = [](const char* list) {
    return fmt::format(R"({{"peft_type": "LORA", "target_modules": ["q_proj"],
        "layers_to_transform": [1], "layers_pattern": {}}})",
                       list);
  };
  EXPECT_EQ(parse_lora(text(R"("layers")"), "f"), parse_lora(text(R"(["h"])"), "f"));
  EXPECT_THROW(parse_lora(text(R"("towers")"), "f"), ConfigError);
}

TEST(AdaptedModel, NameThatFindsNothingIsRefused) {
  const auto refusal = [](const Lora& lora) {
    return refusal_of<ConfigError>([&] { describe(adapted_gpt2(lora)); });
  };
  Lora lora;
  lora.targets = {"c_attn", "q_proj"};
  EXPECT_THAT(refusal(lora), HasSubstr("\"q_proj\" is not a matrix of a block"));
  EXPECT_THAT(refusal(lora), testing::EndsWith("are called c_attn, c_fc, c_proj"));
  lora.targets = {"c_attn"};
  lora.blocks = {3};
  EXPECT_THAT(refusal(lora), HasSubstr("names block 3; the model has 0 to 2"));
  lora.blocks.clear();
  lora.saved = {"head"};
  EXPECT_THAT(refusal(lora), HasSubstr("modules to save have \"head\", which is none"));
  lora.saved = {"wte"};
  EXPECT_THAT(refusal(lora), HasSubstr("are one table"));
}

}  // namespace
}  // namespace strait::models
