#include <gtest/gtest.h>

#include <cmath>

#include "models/linear.h"
#include "tests/models/tiny_gpt2.h"

namespace strait::models {
namespace {

TEST(Description, NamesExactlyTheTensorsThatTheModelHas) {
  for (const bool tied : {true, false}) {
    DecoderConfig values = tiny_values();
    values.tied = tied;
    const ModelDescription description = describe({"gpt2", values});
    const auto model = tiny_model(values, all_layers(values));
    std::vector<TensorShape> owned;
    for (const Parameter& parameter : model->parameters()) {
      if (parameter.owned) owned.push_back({parameter.name, parameter.value.sizes().vec()});
    }
    EXPECT_EQ(description.tensors(), owned);
    EXPECT_EQ(description.layers.size(), 6U);
    EXPECT_EQ(description.layers.back().tied_to, tied ? "transformer.wte.weight" : "");
  }
}

TEST(Description, CountsTheParametersOfTheModelsOnTheHub) {
  EXPECT_EQ(describe({"gpt2", gpt2_values("")}).parameters(), 124'439'808);  // gpt2
  const DecoderConfig extra_large = gpt2_values(R"(, "n_embd": 1600, "n_layer": 48, "n_head": 25)");
  EXPECT_EQ(describe({"gpt2", extra_large}).parameters(), 1'557'611'200);  // gpt2-xl
}

TEST(Description, LongRowsCostMoreInAttentionAlone) {
  const ModelDescription short_rows = describe({"gpt2", gpt2_values("")}, {128, 4});
  const ModelDescription long_rows = describe({"gpt2", gpt2_values("")}, {1024, 4});
  EXPECT_LT(short_rows.layers[1].forward_flops_per_token,
            long_rows.layers[1].forward_flops_per_token);
  EXPECT_EQ(short_rows.layers[13].forward_flops_per_token,
            long_rows.layers[13].forward_flops_per_token);
  // Two for each weight of the matrices, and the scores.
  EXPECT_EQ(short_rows.layers[1].forward_flops_per_token,
            2.0 * 12 * 768 * 768 + 2.0 * 2 * 768 * 128);
}

TEST(Gpt2, SlicesHaveTheirOwnLayersUnderGlobalNames) {
  const auto slice = tiny_model(tiny_values(), {2, 3});
  EXPECT_EQ(slice->parameters().front().name, "transformer.h.1.ln_1.weight");
  EXPECT_EQ(slice->parameters().back().name, "transformer.h.2.mlp.c_proj.bias");
  EXPECT_EQ(slice->layer(3).index(), 3);
}

TEST(Gpt2, NamesATokenThatTheVocabularyLacks) {
  const auto model = tiny_model(tiny_values(), {0, 0});
  at::Tensor tokens = random_tokens(1, 4, 1);
  tokens[0][2] = 61;
  try {
    run_layers(*model, tokens, make_pass({{4}}, 4));
    FAIL() << "token 61 was accepted";
  } catch (const std::out_of_range& error) {
    EXPECT_STREQ(error.what(),
                 "there is a token 61 in the data, but the model has tokens 0 to 60: prepare the "
                 "data for this model");
  }
}

TEST(Gpt2, RefusesRowsLongerThanItsPositions) {
  const auto model = tiny_model(tiny_values(), {0, 0});
  EXPECT_THROW(run_layers(*model, random_tokens(1, 33, 1), make_pass({{33}}, 33)),
               std::out_of_range);
}

TEST(Gpt2, ComputesInBfloat16CloseToFloat32) {
  const DecoderConfig values = tiny_values();
  const auto wide = tiny_model(values, all_layers(values));
  const auto narrow = tiny_model(values, all_layers(values), at::kBFloat16);
  for (const bool training : {false, true}) {
    Pass pass = make_pass({{7, 9}, {16}}, 16);
    pass.training = training;
    const at::Tensor tokens = random_tokens(2, 16, 3);
    const at::Tensor expected = run_layers(*wide, tokens, pass);
    const at::Tensor result = run_layers(*narrow, tokens, pass);
    EXPECT_EQ(result.scalar_type(), at::kBFloat16);
    const double error =
        (result.to(at::kFloat) - expected).norm().item<double>() / expected.norm().item<double>();
    EXPECT_LT(error, 0.05);
    torch::autograd::backward({result.sum()});
    for (const Parameter& parameter : narrow->parameters()) {
      if (!parameter.owned) continue;  // its gradient is the loss's
      EXPECT_TRUE(parameter.value.grad().defined()) << parameter.name;
    }
  }
}

// The fused kernel and the explicit path must be the same attention: a dropout that keeps all but
// nothing takes the second.
TEST(Gpt2, BothWaysOfAttentionAgree) {
  DecoderConfig values = tiny_values_without_dropout();
  const auto fused = tiny_model(values, all_layers(values));
  values.attention_dropout = 1e-300;
  const auto written_out = tiny_model(values, all_layers(values));
  const at::NoGradGuard no_grad;
  for (const std::vector<std::int64_t>& documents :
       {std::vector<std::int64_t>{20}, std::vector<std::int64_t>{3, 9, 2}}) {
    Pass pass = make_pass({documents}, 20);
    pass.training = true;
    const at::Tensor tokens = random_tokens(1, 20, 2);
    EXPECT_LT(largest_difference(run_layers(*fused, tokens, pass),
                                 run_layers(*written_out, tokens, pass)),
              1e-5);
  }
}

// NEFTune, as transformers adds it: uniform up to alpha / sqrt(length * width).
TEST(DecoderEmbedding, NoiseIsBoundedAndThatOfItsStep) {
  const DecoderConfig values = tiny_values_without_dropout();
  const auto model = tiny_model(values, {0, 0});
  const at::NoGradGuard no_grad;
  const at::Tensor tokens = random_tokens(2, 20, 2);
  const auto embedded = [&](double noise, std::uint64_t step) {
    Pass pass = make_pass({{20}, {3, 9, 2}}, 20);
    pass.training = true;
    pass.noise = noise;
    pass.step = step;
    return run_layers(*model, tokens, pass);
  };
  const at::Tensor noise = embedded(5, 1) - embedded(0, 1);
  const double most = 5 / std::sqrt(20.0 * 24.0);
  EXPECT_LE(noise.abs().max().item<double>(), most + 1e-6);
  EXPECT_GT(noise.max().item<double>(), 0.95 * most);
  EXPECT_LT(noise.min().item<double>(), -0.95 * most);
  EXPECT_NEAR(noise.square().mean().sqrt().item<double>(), most / std::sqrt(3.0), 0.05 * most);
  EXPECT_TRUE(at::equal(embedded(5, 1), embedded(5, 1)));
  EXPECT_FALSE(at::equal(embedded(5, 1), embedded(5, 2)));
}

TEST(Linear, BothLayoutsAreTheSameProduct) {
  const at::NoGradGuard no_grad;
  for (const bool bias : {true, false}) {
    ParameterMaker maker(nullptr, at::kFloat, at::kCPU);
    const Linear straight(maker, "a", {5, 7, MatrixLayout::output_input, bias});
    const Linear turned(maker, "b", {5, 7, MatrixLayout::input_output, bias});
    const std::vector<Parameter>& made = maker.made();
    const std::size_t half = made.size() / 2;
    at::Tensor weight = made[0].value;
    weight.copy_(at::rand({7, 5}));
    at::Tensor other = made[half].value;
    other.copy_(weight.t());
    at::Tensor expected = at::zeros({7});
    if (bias) {
      expected = at::rand({7});
      for (const std::size_t index : {std::size_t{1}, half + 1}) {
        at::Tensor value = made[index].value;
        value.copy_(expected);
      }
    }
    const at::Tensor input = at::rand({2, 3, 5});
    expected = at::matmul(input, weight.t()) + expected;
    EXPECT_LT(largest_difference(straight.forward(input, {}), expected), 1e-6);
    EXPECT_LT(largest_difference(turned.forward(input, {}), expected), 1e-6);
  }
}

TEST(Activation, NamesMeanWhatTheyMeanOnTheHub) {
  EXPECT_EQ(activation_named("gelu"), Activation::gelu_erf);
  EXPECT_EQ(activation_named("gelu_new"), Activation::gelu_tanh);
  EXPECT_EQ(activation_named("gelu_pytorch_tanh"), Activation::gelu_tanh);
  EXPECT_EQ(activation_named("mish"), std::nullopt);
  const at::Tensor one = at::ones({1});
  EXPECT_NEAR(activate(one, Activation::gelu_erf).item<double>(), 0.8413447, 1e-6);
  EXPECT_NEAR(activate(one, Activation::gelu_tanh).item<double>(), 0.8411920, 1e-6);
  EXPECT_EQ(activate(-one, Activation::relu).item<double>(), 0);
}

}  // namespace
}  // namespace strait::models
