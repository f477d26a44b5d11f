#include "models/pass.h"

#include <gtest/gtest.h>

#include "models/key_value_cache.h"
#include "models/slice_keys.h"
#include "tests/kernels/live_bytes.h"
#include "tests/models/tiny_gpt2.h"

namespace strait::models {
namespace {

TEST(Pass, PositionsRestartInEveryDocument) {
  const Pass pass = make_pass({{2, 3}, {4}}, 6);
  const at::Tensor expected =
      at::tensor({0, 1, 0, 1, 2, 0, 0, 1, 2, 3, 0, 0}, at::kLong).view({2, 6});
  EXPECT_TRUE(at::equal(pass.positions, expected));
}

TEST(Pass, DocumentsAreSpansOfTheirRows) {
  const Pass pass = make_pass({{2, 1}, {}, {5}}, 5);
  const auto of = [&](std::size_t i) {
    const kernels::AttentionSpan& span = pass.documents[i];
    return std::vector<std::int64_t>{span.row, span.begin, span.length};
  };
  ASSERT_EQ(pass.documents.size(), 3U);
  EXPECT_EQ(of(0), (std::vector<std::int64_t>{0, 0, 2}));
  EXPECT_EQ(of(1), (std::vector<std::int64_t>{0, 2, 1}));
  EXPECT_EQ(of(2), (std::vector<std::int64_t>{2, 0, 5}));
}

void make_recurrent(DecoderConfig& values) {
  values.recurrent = {.key_heads = 1, .heads = 2, .key_width = 4, .width = 6, .taps = 4};
  values.recurrent_blocks = {true, false, true, true};
}

// Each document alone in a row of its own, without packing or padding.
void expect_documents_apart(const DecoderConfig& values, bool training) {
  const auto model = tiny_model(values, all_layers(values));
  const at::NoGradGuard no_grad;
  const at::Tensor tokens = random_tokens(2, 20, 8);
  const std::vector<std::vector<std::int64_t>> documents{{7, 1, 9}, {20}};
  Pass packed = make_pass(documents, 20);
  packed.training = training;
  const at::Tensor together = run_layers(*model, tokens, packed);
  const auto loss = [](const at::Tensor& hidden) {  // of token 0 in place of the vocabulary
    return -hidden.log_softmax(2).select(2, 0).mean().item<double>();
  };
  for (std::int64_t row = 0; row < 2; ++row) {
    std::int64_t begin = 0;
    for (const std::int64_t length : documents[static_cast<std::size_t>(row)]) {
      const at::Tensor apart = run_layers(*model, tokens.narrow(0, row, 1).narrow(1, begin, length),
                                          make_pass({{length}}, length));
      const at::Tensor part = together.narrow(0, row, 1).narrow(1, begin, length);
      EXPECT_LT(largest_difference(apart, part), 1e-5) << "row " << row << " at " << begin;
      EXPECT_NEAR(loss(apart) / loss(part), 1, 1e-6) << "row " << row << " at " << begin;
      begin += length;
    }
  }
}

TEST(Pass, PackedDocumentsGiveWhatTheyGiveApart) {
  for (const bool training : {false, true}) {
    DecoderConfig values = tiny_values_without_dropout();
    expect_documents_apart(values, training);
    make_recurrent(values);
    expect_documents_apart(values, training);
  }
}

TEST(Pass, WhatLiesInPaddingChangesNothingElse) {
  const DecoderConfig values = tiny_values();
  const auto model = tiny_model(values, all_layers(values));
  const at::NoGradGuard no_grad;
  for (const std::vector<std::int64_t>& documents :
       {std::vector<std::int64_t>{5}, std::vector<std::int64_t>{2, 3}}) {
    Pass pass = make_pass({documents}, 9);
    pass.training = true;
    at::Tensor tokens = random_tokens(1, 9, 4);
    const at::Tensor before = run_layers(*model, tokens, pass).narrow(1, 0, 5).clone();
    tokens.narrow(1, 5, 4).fill_(60);
    EXPECT_TRUE(at::equal(before, run_layers(*model, tokens, pass).narrow(1, 0, 5)));
  }
}

TEST(KeyValueCache, GeneratingTokenByTokenGivesTheFullForward) {
  for (const bool recurrent : {false, true}) {
    DecoderConfig values = tiny_values();
    values.scale_by_block_index = true;
    if (recurrent) make_recurrent(values);
    const auto model = tiny_model(values, all_layers(values));
    const at::NoGradGuard no_grad;
    const at::Tensor tokens = random_tokens(2, 18, 6);
    const at::Tensor whole = run_layers(*model, tokens, make_pass({{18}, {18}}, 18));
    SequenceCache first(18);
    SequenceCache second(18);
    std::int64_t begin = 0;
    for (const std::int64_t count : {2, 1, 1, 4, 3, 7}) {  // a prompt, tokens, and more at once
      EXPECT_EQ(second.length(), begin);
      KeyValueCache cache({{&first, count}, {&second, count}});
      const Pass pass = make_pass(cache, 2, count);
      const at::Tensor part = run_layers(*model, tokens.narrow(1, begin, count), pass);
      EXPECT_LT(largest_difference(part, whole.narrow(1, begin, count)), 1e-5) << begin;
      begin += count;
    }
  }
}

// Latent attention in blocks without experts.
std::unique_ptr<Model> latent_model(const std::optional<Lora>& lora = std::nullopt) {
  ModelConfig config = parse_config(
      R"({"model_type": "deepseek_v3", "vocab_size": 61, "hidden_size": 24,
          "intermediate_size": 40, "num_hidden_layers": 3, "num_attention_heads": 3,
          "num_key_value_heads": 3, "q_lora_rank": 10, "kv_lora_rank": 9, "qk_nope_head_dim": 6,
          "qk_rope_head_dim": 4, "v_head_dim": 5, "first_k_dense_replace": 3,
          "n_routed_experts": 6, "num_experts_per_tok": 2, "n_group": 3, "topk_group": 2,
          "moe_intermediate_size": 12, "max_position_embeddings": 64})",
      "config.json");
  if (lora) config.lora = std::make_shared<const Lora>(*lora);
  auto model = make_model(config, {0, 4}, at::kFloat, at::kCPU);
  for (const Parameter& parameter : model->parameters()) {
    at::Generator generator =
        kernels::keyed_generator(kernels::hash_name(parameter.name), at::kCPU);
    assign(parameter, at::empty(parameter.value.sizes(), at::kFloat).normal_(0, 0.3, generator));
  }
  return model;
}

// Of every matrix.
Lora adapters(bool quantized, bool decomposed) {
  Lora lora;
  lora.rank = 2;
  lora.decomposed = decomposed;
  if (quantized) lora.quantization = kernels::MatrixFormat::int8;
  return lora;
}

TEST(KeyValueCache, LatentsGiveTheFullForward) {
  const std::vector<std::optional<Lora>> cases{std::nullopt, adapters(false, false),
                                               adapters(true, false), adapters(false, true),
                                               adapters(true, true)};
  for (const std::optional<Lora>& lora : cases) {
    SCOPED_TRACE(lora ? lora_text(*lora, "", false) : "no adapters");
    const auto model = latent_model(lora);
    const at::NoGradGuard no_grad;
    const at::Tensor tokens = random_tokens(2, 18, 6);
    const at::Tensor whole = run_layers(*model, tokens, make_pass({{18}, {18}}, 18));
    SequenceCache first(18);
    SequenceCache second(18);
    std::int64_t begin = 0;
    for (const std::int64_t count : {2, 1, 1, 4, 3, 7}) {
      KeyValueCache cache({{&first, count}, {&second, count}});
      const at::Tensor part =
          run_layers(*model, tokens.narrow(1, begin, count), make_pass(cache, 2, count));
      EXPECT_LT(largest_difference(part, whole.narrow(1, begin, count)), 2e-5) << begin;
      begin += count;
    }
  }
}

TEST(SliceKeys, SlicesOfRowsGiveTheFullForward) {
  const DecoderConfig plain = tiny_values_without_dropout();
  DecoderConfig windowed = plain;
  windowed.window = 5;
  windowed.windowed = {true, false, true, false};
  std::vector<std::unique_ptr<Model>> all;
  all.push_back(tiny_model(plain, all_layers(plain)));
  all.push_back(tiny_model(windowed, all_layers(windowed)));
  all.push_back(latent_model());
  const at::NoGradGuard no_grad;
  const at::Tensor tokens = random_tokens(2, 18, 6);
  for (const auto& model : all) {
    const at::Tensor whole = run_layers(*model, tokens, make_pass({{5, 7, 6}, {18}}, 18));
    const auto keys = std::make_shared<SliceKeys>();
    // The second document begins in the first slice, the third one with the last.
    const std::vector<std::vector<std::vector<std::int64_t>>> documents{
        {{5, 1}, {6}}, {{6}, {6}}, {{0, 6}, {6}}};
    const std::vector<std::vector<std::int64_t>> past{{0, 0}, {1, 6}, {7, 12}};
    for (int slice = 0; slice < 3; ++slice) {
      const auto index = static_cast<std::size_t>(slice);
      Pass pass = make_pass(documents[index], 6, past[index]);
      pass.slice = {keys, slice, false};
      const at::Tensor part = run_layers(*model, tokens.narrow(1, 6 * slice, 6), pass);
      EXPECT_LT(largest_difference(part, whole.narrow(1, 6 * slice, 6)), 2e-5) << slice;
    }
  }
}

// Beside a sequence that gets one token or several, or alone.
TEST(KeyValueCache, SequencesOfLatentsHaveTheBitsThatTheyHaveAlone) {
  const auto model = latent_model(adapters(/*quantized=*/false, /*decomposed=*/true));
  const at::NoGradGuard no_grad;
  const at::Tensor tokens = random_tokens(1, 7, 6);
  const auto generate = [&](const std::vector<std::int64_t>& others) {
    SequenceCache own(7);
    SequenceCache other(40);
    std::vector<at::Tensor> parts;
    std::int64_t begin = 0;
    std::size_t pass_number = 0;
    for (const std::int64_t count : {3, 1, 1, 2}) {
      std::vector<KeyValueCache::Extension> extensions{{&own, count}};
      std::vector<at::Tensor> given{tokens.narrow(1, begin, count)};
      if (!others.empty()) {
        const std::int64_t more = others[pass_number++];
        extensions.push_back({&other, more});
        given.push_back(random_tokens(1, more, 8));
      }
      KeyValueCache cache(extensions);
      const at::Tensor all = at::cat(given, 1);
      const at::Tensor hidden = run_layers(*model, all, make_pass(cache, 1, all.size(1)));
      parts.push_back(hidden.narrow(1, 0, count));
      begin += count;
    }
    return at::cat(parts, 1);
  };
  const at::Tensor alone = generate({});
  EXPECT_TRUE(at::equal(generate({5, 1, 1, 1}), alone));
  EXPECT_TRUE(at::equal(generate({1, 4, 1, 9}), alone));
}

TEST(KeyValueCache, HoldsLatentsNotTheKeysAndValuesOfHeads) {
  const auto live = std::make_shared<kernels::LiveBytes>();
  const auto model = latent_model();
  const at::NoGradGuard no_grad;
  const c10::DebugInfoGuard counting(c10::DebugInfoKind::PROFILER_STATE, live);
  SequenceCache sequence(1000);
  KeyValueCache cache({{&sequence, 2}});
  const at::Tensor tokens = random_tokens(1, 2, 6);
  const std::int64_t before = live->bytes();
  run_layers(*model, tokens, make_pass(cache, 1, 2));
  const std::int64_t values = 3 * 1000 * (9 + 4);  // blocks, tokens, a latent and a rotated part
  EXPECT_EQ((live->bytes() - before) / static_cast<std::int64_t>(sizeof(float)) / 1000,
            values / 1000);
}

}  // namespace
}  // namespace strait::models
