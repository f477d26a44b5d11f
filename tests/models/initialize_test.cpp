#include "models/initialize.h"

#include <gtest/gtest.h>

#include <cmath>

#include "tests/models/tiny_gpt2.h"

namespace strait::models {
namespace {

DecoderConfig wide_values() {
  DecoderConfig values = gpt2_values(R"(, "vocab_size": 61, "n_positions": 32, "n_embd": 96,
                                         "n_layer": 4, "n_head": 3)");
  values.initializer_range = 0.05;
  return values;
}

std::map<std::string, at::Tensor> initialized(const DecoderConfig& values, LayerRange range,
                                              std::uint64_t seed) {
  const auto model = make_model({"gpt2", values}, range, at::kFloat, at::kCPU);
  initialize(*model, {"gpt2", values}, seed);
  std::map<std::string, at::Tensor> weights;
  for (const Parameter& parameter : model->parameters()) weights[parameter.name] = parameter.value;
  return weights;
}

TEST(Initialize, FollowsTheFamilysRule) {
  const DecoderConfig values = wide_values();
  for (const auto& [name, value] : initialized(values, all_layers(values), 1)) {
    const double deviation = value.numel() > 1 ? value.std().item<double>() : 0;
    const double mean = value.mean().item<double>();
    if (name.ends_with(".bias")) {
      EXPECT_EQ(value.abs().max().item<double>(), 0) << name;
    } else if (name.find("ln_") != std::string::npos) {
      EXPECT_TRUE(at::equal(value, at::ones_like(value))) << name;
    } else {
      const bool ends_branch = name.ends_with("c_proj.weight");
      const double expected = ends_branch ? 0.05 / std::sqrt(8.0) : 0.05;
      const double tolerance = 5 * expected / std::sqrt(static_cast<double>(value.numel()));
      EXPECT_NEAR(deviation, expected, tolerance) << name;
      EXPECT_NEAR(mean, 0, tolerance) << name;
    }
  }
}

TEST(Initialize, GivesEveryPartitionTheSameWeights) {
  for (const bool tied : {true, false}) {
    DecoderConfig values = wide_values();
    values.tied = tied;
    const auto whole = initialized(values, all_layers(values), 4);
    for (const LayerRange range : {LayerRange{0, 1}, LayerRange{2, 3}, LayerRange{4, 5}}) {
      for (const auto& [name, value] : initialized(values, range, 4)) {
        EXPECT_TRUE(at::equal(value, whole.at(name))) << name;
      }
    }
  }
}

TEST(Initialize, DrawsEveryTensorAndSeedApart) {
  const DecoderConfig values = wide_values();
  const auto first = initialized(values, all_layers(values), 4);
  const auto second = initialized(values, all_layers(values), 5);
  EXPECT_FALSE(at::equal(first.at("transformer.wte.weight"), second.at("transformer.wte.weight")));
  EXPECT_FALSE(at::equal(first.at("transformer.h.0.mlp.c_fc.weight"),
                         first.at("transformer.h.1.mlp.c_fc.weight")));
}

TEST(Initialize, NarrowTypesHoldTheRoundedDraw) {
  const DecoderConfig values = wide_values();
  const auto wide = initialized(values, all_layers(values), 4);
  const auto narrow = make_model({"gpt2", values}, all_layers(values), at::kBFloat16, at::kCPU);
  initialize(*narrow, {"gpt2", values}, 4);
  for (const Parameter& parameter : narrow->parameters()) {
    EXPECT_TRUE(at::equal(parameter.value, wide.at(parameter.name).to(at::kBFloat16)));
  }
}

}  // namespace
}  // namespace strait::models
