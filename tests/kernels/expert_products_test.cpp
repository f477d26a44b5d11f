#define HWY_COMPILE_ALL_ATTAINABLE
#include "kernels/expert_products.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <gtest/gtest.h>
#include <hwy/highway.h>
#include <torch/csrc/autograd/autograd.h>

#include <limits>

#include "kernels/weight_gradient_queue.h"
#include "tests/kernels/random_values.h"

namespace strait::kernels::expert_products_test {
namespace {

constexpr std::int64_t kHidden = 24;
constexpr std::int64_t kInner = 19;  // not a multiple of a vector

struct ExpertCase {
  const char* name = "";
  bool joined = false;
  bool input_first = false;
  bool biases = false;
  ClampedGate clamped;
};

const std::vector<ExpertCase>& expert_cases() {
  static const std::vector<ExpertCase> cases{
      {"separate", false, false, false, {}},
      {"joined", true, false, false, {}},
      {"joined, input first, with biases", true, true, true, {}},
      {"clamped pairs with biases", true, true, true, {1.7, 0.8}},
  };
  return cases;
}

// Matrices of so many experts, tokens and the weights of their choices: leaves in float32.
struct ExpertInputs {
  std::vector<ExpertMatrices> experts;
  at::Tensor tokens;
  at::Tensor weights;
  at::Tensor chosen;

  std::vector<at::Tensor> leaves() const {
    std::vector<at::Tensor> all{tokens, weights};
    for (const ExpertMatrices& one : experts) {
      for (const at::Tensor& leaf : {one.gate, one.up, one.up_bias, one.down, one.down_bias}) {
        if (leaf.defined()) all.push_back(leaf);
      }
    }
    return all;
  }
};

// No token goes to the last expert, and most go to the first two.
ExpertInputs expert_inputs(const ExpertCase& one, std::int64_t experts, std::int64_t tokens,
                           std::int64_t ways) {
  std::uint64_t seed = 1;
  const auto leaf = [&](at::IntArrayRef sizes, double scale) {
    return normal_values(sizes, seed++).mul(scale).requires_grad_();
  };
  const auto matrix = [&](std::int64_t in, std::int64_t out) {
    return one.input_first ? leaf({in, out}, 0.3) : leaf({out, in}, 0.3);
  };
  ExpertInputs inputs;
  inputs.tokens = leaf({tokens, kHidden}, 1);
  inputs.weights = leaf({tokens, ways}, 1);
  at::Tensor scores = normal_values({tokens, experts}, seed++);
  scores.select(1, experts - 1).fill_(-100);
  scores.narrow(1, 0, 2).add_(1);
  inputs.chosen = std::get<1>(scores.topk(ways, 1)).contiguous();
  for (std::int64_t i = 0; i < experts; ++i) {
    ExpertMatrices own;
    if (!one.joined) own.gate = matrix(kHidden, kInner);
    own.up = matrix(kHidden, one.joined ? 2 * kInner : kInner);
    if (one.biases) own.up_bias = leaf({2 * kInner}, 1);
    own.down = matrix(kInner, kHidden);
    if (one.biases) own.down_bias = leaf({kHidden}, 1);
    inputs.experts.push_back(own);
  }
  return inputs;
}

at::Tensor ours(const ExpertInputs& inputs, const ExpertCase& one) {
  const ExpertRows rows = sort_by_expert(inputs.chosen, std::ssize(inputs.experts));
  return expert_products(inputs.tokens, inputs.weights, rows, inputs.experts,
                         {one.input_first, one.clamped});
}

// The same by libtorch's operators in double: every expert computes every token.
at::Tensor formula(const ExpertInputs& inputs, const ExpertCase& one) {
  const auto wide = [](const at::Tensor& values) { return values.to(at::kDouble); };
  const auto product = [&](const at::Tensor& input, const at::Tensor& matrix,
                           const at::Tensor& bias) {
    const at::Tensor values = at::matmul(input, one.input_first ? wide(matrix) : wide(matrix).t());
    return bias.defined() ? values + wide(bias) : values;
  };
  const at::Tensor tokens = wide(inputs.tokens);
  at::Tensor sum = at::zeros_like(tokens);
  for (std::size_t i = 0; i < inputs.experts.size(); ++i) {
    const ExpertMatrices& own = inputs.experts[i];
    at::Tensor inner = product(tokens, own.up, own.up_bias);
    if (own.gate.defined()) inner = at::cat({product(tokens, own.gate, {}), inner}, 1);
    const at::Tensor gated = one.clamped.limit > 0 ? clamped_product(inner, one.clamped)
                                                   : gated_product(inner, {}, Activation::silu);
    const at::Tensor share = wide(inputs.weights) * (inputs.chosen == static_cast<std::int64_t>(i));
    sum = sum + product(gated, own.down, own.down_bias) * share.sum(1, /*keepdim=*/true);
  }
  return sum;
}

std::vector<at::Tensor> gradients_of(const ExpertInputs& inputs) {
  std::vector<at::Tensor> gradients;
  for (const at::Tensor& leaf : inputs.leaves()) {
    gradients.push_back(leaf.grad().defined() ? leaf.grad().clone() : at::zeros_like(leaf));
    leaf.mutable_grad() = at::Tensor();
  }
  return gradients;
}

void expect_equal(const std::vector<at::Tensor>& left, const std::vector<at::Tensor>& right) {
  ASSERT_EQ(left.size(), right.size());
  for (std::size_t i = 0; i < left.size(); ++i) {
    EXPECT_TRUE(at::equal(left[i], right[i])) << "leaf " << i;
  }
}

void expect_formula(std::int64_t experts, std::int64_t tokens) {
  for (const ExpertCase& one : expert_cases()) {
    SCOPED_TRACE(testing::Message() << one.name << ", " << experts << " experts");
    const ExpertInputs inputs = expert_inputs(one, experts, tokens, 2);
    const at::Tensor slope = normal_values({tokens, kHidden}, 1000);
    const at::Tensor expected = formula(inputs, one);
    torch::autograd::backward({expected}, {slope.to(at::kDouble)});
    const std::vector<at::Tensor> expected_gradients = gradients_of(inputs);
    const at::Tensor result = ours(inputs, one);
    // Twice: gradients of leaves add up.
    torch::autograd::backward({result}, {slope}, /*retain_graph=*/true);
    torch::autograd::backward({result}, {slope});
    EXPECT_LT(largest_difference(result, expected), 1e-4);
    const std::vector<at::Tensor> found = gradients_of(inputs);
    for (std::size_t i = 0; i < found.size(); ++i) {
      const double scale = expected_gradients[i].abs().max().item<double>();
      EXPECT_LE(largest_difference(found[i], expected_gradients[i] * 2), 1e-5 * scale + 1e-6)
          << "leaf " << i;
    }
  }
}

TEST(ExpertProducts, HaveTheValuesAndGradientsOfTheFormula) {
  expect_formula(3, 50);     // one after the other
  expect_formula(40, 1200);  // shared among threads
}

TEST(ExpertProducts, HaveThemOnEveryInstructionSet) {
  for (const std::int64_t target : hwy::SupportedAndGeneratedTargets()) {
    SCOPED_TRACE(hwy::TargetName(target));
    hwy::SetSupportedTargetsForTest(target);
    expect_formula(4, 30);
  }
  hwy::SetSupportedTargetsForTest(0);
}

TEST(ExpertProducts, HaveTheSameBitsEveryTime) {
  const ExpertCase& one = expert_cases().front();
  const int threads = at::get_num_threads();
  at::set_num_threads(2);
  const ExpertInputs inputs = expert_inputs(one, 40, 1200, 2);
  const at::Tensor slope = normal_values({1200, kHidden}, 1000);
  const auto compute = [&] {
    const at::Tensor result = ours(inputs, one);
    torch::autograd::backward({result}, {slope});
    std::vector<at::Tensor> all = gradients_of(inputs);
    all.push_back(result.detach());
    return all;
  };
  const std::vector<at::Tensor> first = compute();
  for (int i = 0; i < 4; ++i) expect_equal(compute(), first);
  at::set_num_threads(threads);
}

TEST(ExpertProducts, LeaveFrozenMatricesWithoutGradient) {
  const ExpertCase& one = expert_cases().front();
  const ExpertInputs all = expert_inputs(one, 4, 60, 2);
  const at::Tensor slope = normal_values({60, kHidden}, 1000);
  torch::autograd::backward({ours(all, one)}, {slope});
  const std::vector<at::Tensor> expected = gradients_of(all);
  const ExpertInputs frozen = expert_inputs(one, 4, 60, 2);
  for (const ExpertMatrices& own : frozen.experts) {
    own.gate.set_requires_grad(false);
    own.up.set_requires_grad(false);
  }
  torch::autograd::backward({ours(frozen, one)}, {slope});
  EXPECT_FALSE(frozen.experts[0].gate.grad().defined());
  EXPECT_TRUE(at::equal(frozen.experts[0].down.grad(), expected[4]));
  EXPECT_TRUE(at::equal(frozen.tokens.grad(), expected[0]));
}

TEST(ExpertProducts, LeaveGradientsOfMatricesForLater) {
  const ExpertCase& one = expert_cases()[2];
  const ExpertInputs inputs = expert_inputs(one, 4, 60, 2);
  const at::Tensor slope = normal_values({60, kHidden}, 1000);
  torch::autograd::backward({ours(inputs, one)}, {slope});
  const std::vector<at::Tensor> expected = gradients_of(inputs);
  WeightGradientQueue queue;
  {
    const QueueWeightGradients queueing(queue);
    torch::autograd::backward({ours(inputs, one)}, {slope});
  }
  EXPECT_TRUE(queue.contains(inputs.experts[0].up));
  EXPECT_FALSE(queue.contains(inputs.experts[3].up)) << "no token went there";
  queue.play();
  expect_equal(gradients_of(inputs), expected);
}

// A step whose values are not finite must be found by its gradients.
TEST(ExpertProducts, KeepValuesThatAreNotFinite) {
  for (const ExpertCase& one : expert_cases()) {
    SCOPED_TRACE(one.name);
    const ExpertInputs inputs = expert_inputs(one, 4, 60, 2);
    inputs.tokens.detach()[7].fill_(std::numeric_limits<float>::quiet_NaN());
    const at::Tensor result = ours(inputs, one);
    EXPECT_TRUE(result[7].isnan().all().item<bool>());
    EXPECT_TRUE(result[8].isfinite().all().item<bool>());
    torch::autograd::backward({result}, {at::ones_like(result)});
    EXPECT_TRUE(inputs.tokens.grad()[7].isnan().any().item<bool>());
  }
}

TEST(ExpertProducts, TakeFloat32OnTheCpu) {
  const ExpertCase& one = expert_cases().front();
  ExpertInputs inputs = expert_inputs(one, 2, 4, 1);
  EXPECT_TRUE(expert_products_take(inputs.tokens, inputs.experts));
  EXPECT_FALSE(expert_products_take(inputs.tokens.to(at::kBFloat16), inputs.experts));
  inputs.experts[1].up = inputs.experts[1].up.to(at::kBFloat16);
  EXPECT_FALSE(expert_products_take(inputs.tokens, inputs.experts));
}

}  // namespace
}  // namespace strait::kernels::expert_products_test
