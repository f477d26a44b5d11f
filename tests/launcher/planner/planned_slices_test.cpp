#include "launcher/planner/planned_slices.h"

#include <gtest/gtest.h>

#include "launcher/planner/planned_model.h"
#include "launcher/planner/planned_pipeline.h"

namespace strait::planner {
namespace {

constexpr std::int64_t kKeys = 2 * 8 * 4;  // keys and values of a token in float32, width 8

plan::Plan in_slices(std::int64_t slices) {
  plan::Plan plan;
  plan.model_config = R"({"model_type": "gpt2", "n_layer": 4, "n_embd": 8, "n_head": 2})";
  plan.slices = slices;
  return plan;
}

SliceKeyBytes bytes_of(const plan::Plan& plan, const models::LayerRange& chunk) {
  return slice_key_bytes(plan, models::describe(planned_model(plan)), chunk);
}

// Of four slices the backwards of three read copies, of two, three and four slices.
TEST(SliceKeyBytes, AreCountedByHand) {
  EXPECT_EQ(bytes_of(in_slices(1), {0, 5}).held, 0);
  EXPECT_EQ(bytes_of(in_slices(1), {0, 5}).working, 0);
  plan::Plan plan = in_slices(4);
  EXPECT_EQ(bytes_of(plan, {0, 0}).held, 0) << "an embedding has no keys";
  EXPECT_EQ(bytes_of(plan, {1, 2}).held, 2 * (2 + 3 + 4) * kKeys / 4);
  EXPECT_EQ(bytes_of(plan, {1, 2}).working, 0);
  plan.recipe.model.recompute = recipe::Recompute::layer;
  EXPECT_EQ(bytes_of(plan, {1, 2}).held, 2 * kKeys);
  EXPECT_EQ(bytes_of(plan, {1, 2}).working, 2 * kKeys + kKeys) << "gradients, and one copy";
  plan.recipe.model.recompute = recipe::Recompute::none;
  plan.recipe.model.lora.emplace().layers = {2, 3};
  EXPECT_EQ(bytes_of(plan, {1, 2}).held, 2 * kKeys) << "frozen, without a backward";
}

// Generation keeps latents. Training attends to the heads that are made of them.
TEST(SliceKeyBytes, OfLatentsAreThoseOfHeads) {
  plan::Plan plan = in_slices(2);
  plan.model_config = R"({"model_type": "deepseek_v3", "num_hidden_layers": 1})";
  const models::ModelDescription model = models::describe(planned_model(plan));
  EXPECT_EQ(model.layers[1].attended_values, 2 * 128 * (128 + 64));
  EXPECT_LT(model.layers[1].cached.values, 1000);
}

TEST(BestSlices, AreTheFewestOfThoseThatAreNearlyFastestAndFit) {
  std::vector<std::int64_t> asked;
  const auto best = [&](const std::map<std::int64_t, std::optional<double>>& seconds) {
    std::vector<std::int64_t> possible;
    for (const auto& [slices, one] : seconds) possible.push_back(slices);
    asked.clear();
    return best_slices(possible, [&](std::int64_t slices) {
      asked.push_back(slices);
      return seconds.at(slices);
    });
  };
  EXPECT_EQ(best({{1, 8.0}, {2, 6.0}, {4, 5.0}, {8, 4.97}, {16, 4.96}}), 4);
  EXPECT_EQ(best({{1, 8.0}, {2, 9.0}, {4, 1.0}}), 1);
  EXPECT_EQ(asked, (std::vector<std::int64_t>{1, 2})) << "more slices gain less";
  EXPECT_EQ(best({{1, std::nullopt}, {2, 6.0}, {4, std::nullopt}}), 2);
  EXPECT_EQ(best({{1, 8.0}, {2, std::nullopt}, {4, std::nullopt}}), 1);
  EXPECT_EQ(best({{1, std::nullopt}, {2, std::nullopt}}), 1);
}

TEST(SlicePassTokens, AreTheFixedCostOfAllSlicesButOne) {
  EXPECT_EQ(slice_pass_tokens(in_slices(1)), 0);
  EXPECT_EQ(slice_pass_tokens(in_slices(4)), 3 * assumed_pass_tokens(in_slices(4)));
}

}  // namespace
}  // namespace strait::planner
