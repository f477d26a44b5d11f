#include "kernels/cross_entropy.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include <array>
#include <cmath>
#include <stdexcept>

#include "kernels/random.h"
#include "tests/kernels/random_values.h"

namespace strait::kernels::cross_entropy_test {
namespace {

at::Tensor random_targets(std::int64_t count, std::int64_t vocabulary, std::uint64_t seed) {
  at::Generator generator = keyed_generator(seed, at::kCPU);
  return at::empty({count}, at::kLong).random_(0, vocabulary, generator);
}

struct Problem {
  Projection projection;
  at::Tensor hidden;
  at::Tensor targets;
};

Problem make_problem(std::int64_t count, std::int64_t width, std::int64_t vocabulary, bool bias) {
  Problem problem;
  problem.projection.weight = normal_values({vocabulary, width}, 1);
  if (bias) problem.projection.bias = normal_values({vocabulary}, 2);
  problem.hidden = normal_values({count, width}, 3);
  problem.targets = random_targets(count, vocabulary, 4);
  return problem;
}

Projection zeros_for(const Projection& projection) {
  Projection zeros;
  zeros.weight = at::zeros(projection.weight.sizes(), at::kFloat);
  if (projection.bias.defined()) zeros.bias = at::zeros(projection.bias.sizes(), at::kFloat);
  return zeros;
}

struct Reference {
  double loss = 0;
  at::Tensor hidden;
  at::Tensor weight;
  at::Tensor bias;
};

// The same by libtorch's own functions and autograd, in double.
Reference reference(const Problem& problem, double scale) {
  const at::Tensor hidden = problem.hidden.to(at::kDouble).requires_grad_();
  const at::Tensor weight = problem.projection.weight.to(at::kDouble).requires_grad_();
  at::Tensor logits = at::mm(hidden, weight.t());
  at::Tensor bias;
  if (problem.projection.bias.defined()) {
    bias = problem.projection.bias.to(at::kDouble).requires_grad_();
    logits = logits + bias;
  }
  const at::Tensor loss =
      at::nll_loss(at::log_softmax(logits, 1), problem.targets, {}, at::Reduction::Sum);
  torch::autograd::backward({loss * scale});
  return {loss.item<double>(), hidden.grad(), weight.grad(),
          bias.defined() ? bias.grad() : at::Tensor()};
}

// A vocabulary so large that not many rows go in several chunks, at a width of a model: for
// matrices a few numbers wide, MKL adds up one by one on some processors, which loses digits.
constexpr std::int64_t kLargeVocabulary = 100'000;
constexpr std::int64_t kModelWidth = 64;

TEST(CrossEntropy, AgreesWithLogSoftmaxAndAutograd) {
  for (const bool bias : {false, true}) {
    SCOPED_TRACE(bias ? "with bias" : "without bias");
    const Problem problem = make_problem(57, 24, 97, bias);
    const Reference expected = reference(problem, 0.125);
    const Projection gradient = zeros_for(problem.projection);
    const CrossEntropyResult result =
        cross_entropy(problem.projection, problem.hidden, problem.targets, 0.125, gradient);
    EXPECT_NEAR(result.loss_sum.item<double>(), expected.loss, 1e-6 * expected.loss);
    EXPECT_LT(largest_difference(result.hidden_gradient, expected.hidden), 1e-6);
    EXPECT_LT(largest_difference(gradient.weight, expected.weight), 2e-6);
    if (bias) {
      EXPECT_LT(largest_difference(gradient.bias, expected.bias), 2e-6);
    }
  }
}

TEST(CrossEntropy, ChunksOfRowsGiveWhatTheWholeGives) {
  const std::int64_t chunk = cross_entropy_rows(kLargeVocabulary, kModelWidth);
  const std::int64_t count = chunk + 1;
  ASSERT_GT(chunk, 1);
  const Problem problem = make_problem(count, kModelWidth, kLargeVocabulary, false);
  problem.hidden.div_(8);  // logits of about 1
  const Reference expected = reference(problem, 1.0);
  const Projection gradient = zeros_for(problem.projection);
  const CrossEntropyResult result =
      cross_entropy(problem.projection, problem.hidden, problem.targets, 1.0, gradient);
  EXPECT_NEAR(result.loss_sum.item<double>(), expected.loss, 1e-6 * expected.loss);
  EXPECT_LT(largest_difference(result.hidden_gradient, expected.hidden), 1e-5);
  EXPECT_LT(largest_difference(gradient.weight, expected.weight), 1e-5);
}

TEST(CrossEntropy, AddsToGradientsThatAreThere) {
  const Problem problem = make_problem(11, 6, 13, true);
  const Projection once = zeros_for(problem.projection);
  cross_entropy(problem.projection, problem.hidden, problem.targets, 1.0, once);
  const Projection onto_ones = zeros_for(problem.projection);
  onto_ones.weight.fill_(1);
  onto_ones.bias.fill_(1);
  cross_entropy(problem.projection, problem.hidden, problem.targets, 1.0, onto_ones);
  EXPECT_LT(largest_difference(onto_ones.weight, once.weight + 1), 1e-6);
  EXPECT_LT(largest_difference(onto_ones.bias, once.bias + 1), 1e-6);
}

TEST(CrossEntropy, LossAloneHasTheSameBits) {
  const Problem problem = make_problem(41, 16, 50, true);
  const CrossEntropyResult result = cross_entropy(
      problem.projection, problem.hidden, problem.targets, 0.5, zeros_for(problem.projection));
  const at::Tensor alone = cross_entropy_loss(problem.projection, problem.hidden, problem.targets);
  EXPECT_EQ(result.loss_sum.item<double>(), alone.item<double>());
}

TEST(CrossEntropy, SkipsUnneededWeightGradient) {
  const Problem problem = make_problem(9, 4, 10, false);
  const Projection gradient = zeros_for(problem.projection);
  const CrossEntropyResult with =
      cross_entropy(problem.projection, problem.hidden, problem.targets, 1.0, gradient);
  const CrossEntropyResult without =
      cross_entropy(problem.projection, problem.hidden, problem.targets, 1.0, {});
  EXPECT_TRUE(at::equal(with.hidden_gradient, without.hidden_gradient));
}

TEST(CrossEntropy, StaysFiniteWithHugeLogits) {
  Problem problem = make_problem(5, 4, 7, false);
  problem.hidden = problem.hidden * 1e4;
  const Reference expected = reference(problem, 1.0);
  const CrossEntropyResult result = cross_entropy(
      problem.projection, problem.hidden, problem.targets, 1.0, zeros_for(problem.projection));
  ASSERT_TRUE(std::isfinite(result.loss_sum.item<double>()));
  EXPECT_NEAR(result.loss_sum.item<double>(), expected.loss, 1e-5 * expected.loss);
  EXPECT_TRUE(at::isfinite(result.hidden_gradient).all().item<bool>());
}

TEST(CrossEntropy, WorksInBfloat16WithFloat32Sums) {
  Problem problem = make_problem(64, 32, 40, false);
  const Reference expected = reference(problem, 1.0);
  problem.hidden = problem.hidden.to(at::kBFloat16);
  problem.projection.weight = problem.projection.weight.to(at::kBFloat16);
  const Projection gradient = zeros_for(problem.projection);
  const CrossEntropyResult result =
      cross_entropy(problem.projection, problem.hidden, problem.targets, 1.0, gradient);
  EXPECT_EQ(result.hidden_gradient.scalar_type(), at::kBFloat16);
  EXPECT_NEAR(result.loss_sum.item<double>(), expected.loss, 1e-2 * expected.loss);
  EXPECT_LT(largest_difference(gradient.weight, expected.weight), 0.1);
}

TEST(CrossEntropy, WithoutTargetsThereIsNothing) {
  const Problem problem = make_problem(0, 4, 7, false);
  const Projection gradient = zeros_for(problem.projection);
  const CrossEntropyResult result =
      cross_entropy(problem.projection, problem.hidden, problem.targets, 1.0, gradient);
  EXPECT_EQ(result.loss_sum.item<double>(), 0.0);
  EXPECT_EQ(result.hidden_gradient.sizes(), at::IntArrayRef({0, 4}));
  EXPECT_EQ(gradient.weight.abs().max().item<double>(), 0.0);
}

TEST(CrossEntropy, NamesATargetThatTheVocabularyLacks) {
  check_targets({}, 7);
  check_targets(std::array{std::int64_t{0}, std::int64_t{6}}, 7);
  for (const std::int64_t bad : {std::int64_t{7}, std::int64_t{-1}}) {
    try {
      check_targets(std::array{std::int64_t{6}, bad, std::int64_t{0}}, 7);
      FAIL() << "target " << bad << " was accepted";
    } catch (const std::out_of_range& error) {
      const std::string message = error.what();
      EXPECT_NE(message.find("is " + std::to_string(bad)), std::string::npos) << message;
      EXPECT_NE(message.find("0 to 6"), std::string::npos) << message;
    }
  }
}

}  // namespace
}  // namespace strait::kernels::cross_entropy_test
