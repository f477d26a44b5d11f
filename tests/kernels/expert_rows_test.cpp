#include "kernels/expert_rows.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include "kernels/random.h"
#include "tests/kernels/random_values.h"

namespace strait::kernels::expert_rows_test {
namespace {

constexpr std::int64_t kTokens = 37;
constexpr std::int64_t kWays = 3;
constexpr std::int64_t kExperts = 6;
constexpr std::int64_t kWidth = 20;

// Experts of every token, all different; none goes to expert 4.
at::Tensor random_choices() {
  at::Generator generator = keyed_generator(5, at::kCPU);
  at::Tensor scores = at::rand({kTokens, kExperts}, generator);
  scores.select(1, 4).zero_();
  return std::get<1>(scores.topk(kWays, 1)).contiguous();
}

TEST(ExpertRows, AreSortedByExpertAndThenByToken) {
  const at::Tensor chosen = random_choices();
  const ExpertRows rows = sort_by_expert(chosen, kExperts);
  EXPECT_EQ(rows.counts[4], 0);
  std::int64_t row = 0;
  for (std::int64_t expert = 0; expert < kExperts; ++expert) {
    std::int64_t last = -1;
    for (std::int64_t i = 0; i < rows.counts[static_cast<std::size_t>(expert)]; ++i, ++row) {
      const auto token = rows.tokens[row].item<std::int64_t>();
      const auto choice = rows.choices[row].item<std::int64_t>();
      EXPECT_LT(last, token);
      EXPECT_EQ(choice / kWays, token);
      EXPECT_EQ(chosen.flatten()[choice].item<std::int64_t>(), expert);
      EXPECT_EQ(rows.places.flatten()[choice].item<std::int64_t>(), row);
      last = token;
    }
  }
  EXPECT_EQ(row, kTokens * kWays) << "a row was dropped";
}

TEST(ExpertRows, NoTokensGiveNoRows) {
  const ExpertRows rows = sort_by_expert(at::empty({0, kWays}, at::kLong), kExperts);
  EXPECT_EQ(rows.tokens.numel(), 0);
  EXPECT_THAT(rows.counts, testing::Each(0));
}

struct Gradients {
  at::Tensor result;
  at::Tensor tokens;
  at::Tensor weights;
};

// Every expert multiplies its rows by its number; `ours` or by libtorch's operators in double.
Gradients gradients_of(bool ours) {
  const at::ScalarType type = ours ? at::kFloat : at::kDouble;
  const at::Tensor tokens = normal_values({kTokens, kWidth}, 1).to(type).requires_grad_();
  const at::Tensor weights = normal_values({kTokens, kWays}, 2).to(type).requires_grad_();
  const at::Tensor slope = normal_values({kTokens, kWidth}, 3).to(type);
  const at::Tensor chosen = random_choices();
  at::Tensor result;
  if (ours) {
    const ExpertRows rows = sort_by_expert(chosen, kExperts);
    const at::Tensor factors = chosen.flatten().index_select(0, rows.choices).to(type);
    result = combine_rows(gather_rows(tokens, rows) * factors.unsqueeze(1), weights, rows);
  } else {
    result = tokens * (weights * chosen.to(type)).sum(1, /*keepdim=*/true);
  }
  torch::autograd::backward({result}, {slope});
  return {result.detach(), tokens.grad(), weights.grad()};
}

TEST(ExpertRows, SumsAndGradientsAreThoseOfTheFormula) {
  const Gradients ours = gradients_of(true);
  const Gradients exact = gradients_of(false);
  const auto near = [](const at::Tensor& left, const at::Tensor& right) {
    return at::allclose(left.to(at::kDouble), right, 1e-5, 1e-5);
  };
  EXPECT_TRUE(near(ours.result, exact.result));
  EXPECT_TRUE(near(ours.tokens, exact.tokens));
  EXPECT_TRUE(near(ours.weights, exact.weights));
}

TEST(ExpertRows, BitsDoNotDependOnThreads) {
  const int before = at::get_num_threads();
  at::set_num_threads(1);
  const Gradients one = gradients_of(true);
  at::set_num_threads(2);
  const Gradients two = gradients_of(true);
  at::set_num_threads(before);
  EXPECT_TRUE(at::equal(one.result, two.result));
  EXPECT_TRUE(at::equal(one.tokens, two.tokens));
  EXPECT_TRUE(at::equal(one.weights, two.weights));
}

TEST(ExpertRows, SumsOfBfloat16AreRoundedOnce) {
  const ExpertRows rows = sort_by_expert(at::tensor({0, 1, 2}, at::kLong).view({1, 3}), 3);
  const at::Tensor values = at::tensor({256.0, 1.0, 1.0}).view({3, 1}).to(at::kBFloat16);
  const at::Tensor sum = combine_rows(values, at::ones({1, 3}, at::kBFloat16), rows);
  EXPECT_EQ(sum.item<double>(), 258) << "256 + 1 is 256 in bfloat16";
}

TEST(ExpertRows, SlopeIsAddedToTheGradientOfEveryToken) {
  const at::Tensor probabilities = normal_values({4, 3}, 1).requires_grad_();
  const at::Tensor same = with_slope(probabilities, at::tensor({1.0F, 2.0F, 3.0F}));
  EXPECT_TRUE(at::equal(same, probabilities));
  torch::autograd::backward({same}, {at::ones({4, 3})});
  EXPECT_TRUE(at::equal(probabilities.grad(), at::tensor({2.0F, 3.0F, 4.0F}).expand({4, 3})));
}

}  // namespace
}  // namespace strait::kernels::expert_rows_test
