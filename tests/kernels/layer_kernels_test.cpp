// The kernels of layers that make their own gradients: linear, RMS norm, rotation.
#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include "kernels/linear.h"
#include "kernels/rms_norm.h"
#include "kernels/rotate_heads.h"
#include "kernels/weight_gradient_queue.h"
#include "tests/kernels/random_values.h"

namespace strait::kernels::layer_kernels_test {
namespace {

at::Tensor layer_leaf(at::IntArrayRef sizes, std::uint64_t seed) {
  return normal_values(sizes, seed, at::kDouble).requires_grad_();
}

TEST(Linear, HasTheGradientsOfTheProduct) {
  for (const bool input_first : {false, true}) {
    const std::vector<std::int64_t> sizes =
        input_first ? std::vector<std::int64_t>{4, 3} : std::vector<std::int64_t>{3, 4};
    const at::Tensor input = layer_leaf({5, 4}, 1);
    const at::Tensor weight = layer_leaf(sizes, 2);
    const at::Tensor bias = layer_leaf({3}, 3);
    const at::Tensor slope = normal_values({5, 3}, 4, at::kDouble);
    const at::Tensor matrix = input_first ? weight : weight.t();
    torch::autograd::backward({at::matmul(input, matrix) + bias}, {slope});
    const std::vector<at::Tensor> expected{input.grad(), weight.grad(), bias.grad()};
    for (const at::Tensor& leaf : {input, weight, bias}) leaf.mutable_grad() = at::Tensor();
    // Twice: gradients add up.
    for (int i = 0; i < 2; ++i) {
      torch::autograd::backward({linear(input, weight, bias, input_first)}, {slope});
    }
    EXPECT_LT(largest_difference(input.grad(), expected[0] * 2), 1e-12);
    EXPECT_LT(largest_difference(weight.grad(), expected[1] * 2), 1e-12);
    EXPECT_LT(largest_difference(bias.grad(), expected[2] * 2), 1e-12);
  }
}

TEST(Linear, AddsIntoTheBufferThatIsTheLeafsGradient) {
  const at::Tensor weight = layer_leaf({3, 4}, 2);
  at::Tensor buffer = at::ones({3, 4}, at::kDouble);
  weight.mutable_grad() = buffer;
  const at::Tensor input = normal_values({5, 4}, 1, at::kDouble);  // no gradient of its own
  torch::autograd::backward({linear(input, weight, {}, false).sum()});
  EXPECT_TRUE(weight.grad().is_same(buffer));
  EXPECT_LT(largest_difference(buffer, at::ones({5, 3}, at::kDouble).t().matmul(input) + 1), 1e-12);
}

TEST(Linear, QueuesWeightGradientsAndAddsThemWhenPlayed) {
  const at::Tensor input = layer_leaf({5, 4}, 1);
  const at::Tensor weight = layer_leaf({3, 4}, 2);
  const at::Tensor bias = layer_leaf({3}, 3);
  const at::Tensor base = normal_values({4, 3}, 4, at::kDouble);
  const LowRank low{layer_leaf({2, 3}, 5), layer_leaf({4, 2}, 6), 0.5, {}};
  const std::vector<at::Tensor> leaves{input, weight, bias, low.down, low.up};
  const auto backward = [&] {
    const at::Tensor first = linear(input, weight, bias, false);
    LowRank adapter = low;
    adapter.input = first;
    torch::autograd::backward({adapted_linear(first, base, {}, false, adapter).pow(2).sum()});
  };
  backward();
  std::vector<at::Tensor> expected;
  for (const at::Tensor& leaf : leaves) {
    expected.push_back(leaf.grad());
    leaf.mutable_grad() = at::Tensor();
  }
  WeightGradientQueue queue;
  {
    const QueueWeightGradients queueing(queue);
    backward();
    EXPECT_TRUE(is_left_for_later(weight) && is_left_for_later(low.up));
    EXPECT_FALSE(is_left_for_later(bias));
  }
  EXPECT_EQ(queue.size(), 2U);
  EXPECT_FALSE(is_left_for_later(weight)) << "another backward";
  EXPECT_TRUE(at::equal(input.grad(), expected[0]));
  EXPECT_TRUE(at::equal(bias.grad(), expected[2])) << "small ones are added at once";
  for (const at::Tensor& leaf : {weight, low.down, low.up}) EXPECT_FALSE(leaf.grad().defined());
  queue.play();
  EXPECT_EQ(queue.size(), 0U);
  for (std::size_t i = 0; i < leaves.size(); ++i) {
    EXPECT_TRUE(at::equal(leaves[i].grad(), expected[i])) << i;
  }
  // A frozen weight has nothing to queue.
  const QueueWeightGradients queueing(queue);
  torch::autograd::backward(
      {linear(input, normal_values({3, 4}, 2, at::kDouble), {}, false).sum()});
  EXPECT_EQ(queue.size(), 0U);
}

TEST(Linear, LeavesFrozenWeightsWithoutGradient) {
  const at::Tensor weight = normal_values({3, 4}, 2, at::kDouble);
  const at::Tensor bias = normal_values({3}, 2, at::kDouble);
  const at::Tensor input = layer_leaf({5, 4}, 1);
  torch::autograd::backward({linear(input, weight, bias, false).sum()});
  EXPECT_FALSE(weight.grad().defined() || bias.grad().defined());
  EXPECT_LT(largest_difference(input.grad(), at::ones({5, 3}, at::kDouble).matmul(weight)), 1e-12);
}

TEST(Linear, SumsGradientsOfBfloat16InFloat32) {
  const at::Tensor weight =
      normal_values({3, 4}, 2, at::kDouble).to(at::kBFloat16).requires_grad_();
  at::Tensor sum = at::zeros({3, 4}, at::kFloat);
  weight.mutable_grad() = sum;
  const at::Tensor input = at::ones({1, 4}, at::kBFloat16);
  // 1/256 is lost when added to 1 in bfloat16.
  torch::autograd::backward({linear(input, weight, {}, false).sum()});
  torch::autograd::backward({linear(input, weight, {}, false).mul(1.0 / 256).sum()});
  EXPECT_TRUE(at::equal(sum, at::full({3, 4}, 1 + 1.0 / 256, at::kFloat)));
}

TEST(RmsNorm, EqualsTheFormula) {
  for (const bool one_plus_weight : {false, true}) {
    const at::Tensor input = layer_leaf({2, 3, 8}, 1);
    const at::Tensor weight = layer_leaf({8}, 2);
    const at::Tensor slope = normal_values({2, 3, 8}, 3, at::kDouble);
    const at::Tensor result = rms_norm(input, weight, {1e-3, one_plus_weight});
    torch::autograd::backward({result}, {slope});
    const at::Tensor other_input = layer_leaf({2, 3, 8}, 1);
    const at::Tensor other_weight = layer_leaf({8}, 2);
    const at::Tensor factor = one_plus_weight ? other_weight + 1 : other_weight;
    const at::Tensor scale = (other_input.square().mean(-1, true) + 1e-3).rsqrt();
    const at::Tensor expected = other_input * scale * factor;
    torch::autograd::backward({expected}, {slope});
    EXPECT_LT(largest_difference(result, expected), 1e-13);
    EXPECT_LT(largest_difference(input.grad(), other_input.grad()), 1e-13);
    EXPECT_LT(largest_difference(weight.grad(), other_weight.grad()), 1e-13);
  }
}

// Bfloat16 has 8 bits: 1 + w rounds before or after the product, which is the difference of the
// two rules.
TEST(RmsNorm, ComputesInFloat32UnderBfloat16) {
  const at::Tensor wide = normal_values({4, 64}, 1, at::kDouble).to(at::kBFloat16).to(at::kDouble);
  const at::Tensor weight = normal_values({64}, 2, at::kDouble).to(at::kBFloat16);
  const at::Tensor scale = (wide.square().mean(-1, true) + 1e-6).rsqrt();
  const at::Tensor normal = (wide * scale).to(at::kFloat);
  const auto ours = [&](bool one_plus_weight) {
    return rms_norm(wide.to(at::kBFloat16), weight, {1e-6, one_plus_weight});
  };
  EXPECT_TRUE(at::equal(ours(false), normal.to(at::kBFloat16) * weight));
  EXPECT_TRUE(at::equal(ours(true), (normal * (weight.to(at::kFloat) + 1)).to(at::kBFloat16)));
}

TEST(RotateHeads, TurnsEveryPairByItsAngle) {
  for (const RotaryPairs pairs : {RotaryPairs::halves, RotaryPairs::neighbours}) {
    const at::Tensor heads = layer_leaf({2, 3, 2, 7}, 1);  // six rotated values, one that passes
    const at::Tensor angle = normal_values({2, 3, 3}, 2, at::kDouble);
    const at::Tensor result = rotate_heads(heads, angle.cos(), angle.sin(), pairs);
    const at::Tensor slope = normal_values({2, 3, 2, 7}, 3, at::kDouble);
    torch::autograd::backward({result}, {slope});
    for (std::int64_t pair = 0; pair < 3; ++pair) {
      const bool halves = pairs == RotaryPairs::halves;
      const std::int64_t first = halves ? pair : 2 * pair;
      const std::int64_t second = halves ? pair + 3 : 2 * pair + 1;
      const at::Tensor cos = angle.cos().select(2, pair).unsqueeze(2);
      const at::Tensor sin = angle.sin().select(2, pair).unsqueeze(2);
      const auto turned = [&](const at::Tensor& from, const at::Tensor& by) {
        return std::pair{from.select(3, first) * cos - from.select(3, second) * by,
                         from.select(3, second) * cos + from.select(3, first) * by};
      };
      const auto [a, b] = turned(heads, sin);
      EXPECT_LT(largest_difference(result.select(3, first), a), 1e-14);
      EXPECT_LT(largest_difference(result.select(3, second), b), 1e-14);
      const auto [da, db] = turned(slope, -sin);  // the gradient is the inverse rotation
      EXPECT_LT(largest_difference(heads.grad().select(3, first), da), 1e-14);
      EXPECT_LT(largest_difference(heads.grad().select(3, second), db), 1e-14);
    }
    EXPECT_TRUE(at::equal(result.select(3, 6), heads.select(3, 6)));
  }
}

// So that no way of computing it, as with one rounding of both, changes a run's bits.
TEST(RotateHeads, RoundsEveryProductAndEverySum) {
  for (const at::ScalarType type : {at::kFloat, at::kBFloat16}) {
    const at::Tensor heads = normal_values({2, 3, 2, 6}, 1, type).requires_grad_();
    const at::Tensor slope = normal_values({2, 3, 2, 6}, 2, type);
    const at::Tensor angle = normal_values({2, 3, 3}, 3, at::kFloat);
    const at::Tensor cos = angle.cos().to(type).unsqueeze(2);
    const at::Tensor sin = angle.sin().to(type).unsqueeze(2);
    const auto turned = [&](const at::Tensor& from, const at::Tensor& by) {
      const at::Tensor first = from.narrow(3, 0, 3);
      const at::Tensor second = from.narrow(3, 3, 3);
      return at::cat({first * cos - second * by, second * cos + first * by}, 3);
    };
    const at::Tensor result = rotate_heads(heads, angle.cos(), angle.sin(), RotaryPairs::halves);
    torch::autograd::backward({result}, {slope});
    EXPECT_TRUE(at::equal(result, turned(heads, sin))) << type;
    EXPECT_TRUE(at::equal(heads.grad(), turned(slope, -sin))) << type;
  }
}

}  // namespace
}  // namespace strait::kernels::layer_kernels_test
