#include "kernels/delta_rule.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <ATen/core/grad_mode.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include "tests/kernels/random_values.h"

namespace strait::kernels::delta_rule_test {
namespace {

constexpr std::int64_t kRows = 2;
constexpr std::int64_t kLength = 150;  // three chunks
constexpr std::int64_t kKeyHeads = 2;
constexpr std::int64_t kHeads = 4;
constexpr std::int64_t kKeyWidth = 6;
constexpr std::int64_t kWidth = 5;

// Whole chunks, parts of one, several documents in a row, and padding between.
const std::vector<AttentionSpan> kSpans{{0, 0, 130}, {0, 130, 20}, {1, 3, 64}, {1, 67, 1}};

DeltaHeads random_heads(at::ScalarType type) {
  const auto make = [&](at::IntArrayRef sizes, std::uint64_t seed) {
    return normal_values(sizes, seed, at::kDouble).to(type);
  };
  DeltaHeads heads{make({kRows, kLength, kKeyHeads, kKeyWidth}, 1),
                   make({kRows, kLength, kKeyHeads, kKeyWidth}, 2),
                   make({kRows, kLength, kHeads, kWidth}, 3),
                   make({kRows, kLength, kHeads}, 4).sigmoid(),
                   make({kRows, kLength, kHeads}, 5).exp().mul(-0.3)};
  for (at::Tensor* input : {&heads.query, &heads.key, &heads.value, &heads.beta, &heads.decay}) {
    input->requires_grad_();
  }
  return heads;
}

at::Tensor unit(const at::Tensor& values) {
  return values / (values.square().sum(-1, true) + 1e-6).sqrt();
}

// Written from the formula, token by token.
at::Tensor plain_rule(const DeltaHeads& heads, const std::vector<AttentionSpan>& spans) {
  const auto shared = [](const at::Tensor& values) {
    return unit(values).repeat_interleave(kHeads / kKeyHeads, 2);
  };
  const at::Tensor query = shared(heads.query) / std::sqrt(static_cast<double>(kKeyWidth));
  const at::Tensor key = shared(heads.key);
  at::Tensor result = at::zeros(heads.value.sizes(), heads.value.options().requires_grad(false));
  for (const AttentionSpan& span : spans) {
    at::Tensor state = at::zeros({kHeads, kKeyWidth, kWidth}, result.options());
    for (std::int64_t i = span.begin; i < span.begin + span.length; ++i) {
      const auto at_token = [&](const at::Tensor& values) { return values[span.row][i]; };
      state = state * at_token(heads.decay).exp().view({kHeads, 1, 1});
      const at::Tensor k = at_token(key).unsqueeze(2);
      const at::Tensor known = (state * k).sum(1);
      const at::Tensor change = (at_token(heads.value) - known) * at_token(heads.beta).unsqueeze(1);
      state = state + k * change.unsqueeze(1);
      result[span.row][i] = (state * at_token(query).unsqueeze(2)).sum(1);
    }
  }
  return result;
}

TEST(DeltaRule, IsTheFormulaForwardAndBackward) {
  const DeltaHeads ours = random_heads(at::kDouble);
  const DeltaHeads theirs = random_heads(at::kDouble);
  const at::Tensor result = delta_rule(ours, kSpans);
  const at::Tensor expected = plain_rule(theirs, kSpans);
  EXPECT_LT(largest_difference(result, expected), 1e-12);
  const at::Tensor slope = normal_values(result.sizes(), 6, at::kDouble);
  torch::autograd::backward({result}, {slope});
  torch::autograd::backward({expected}, {slope});
  EXPECT_LT(largest_difference(ours.query.grad(), theirs.query.grad()), 1e-11);
  EXPECT_LT(largest_difference(ours.key.grad(), theirs.key.grad()), 1e-11);
  EXPECT_LT(largest_difference(ours.value.grad(), theirs.value.grad()), 1e-11);
  EXPECT_LT(largest_difference(ours.beta.grad(), theirs.beta.grad()), 1e-11);
  EXPECT_LT(largest_difference(ours.decay.grad(), theirs.decay.grad()), 1e-11);
}

TEST(DeltaRule, ComputesInFloat32) {
  const at::NoGradGuard no_grad;
  const at::Tensor expected = delta_rule(random_heads(at::kDouble), kSpans);
  EXPECT_LT(largest_difference(delta_rule(random_heads(at::kFloat), kSpans), expected), 1e-5);
  EXPECT_LT(largest_difference(delta_rule(random_heads(at::kBFloat16), kSpans), expected), 0.1);
}

// A decay to nothing: its exponentials underflow, and those of differences would overflow.
TEST(DeltaRule, ForgetsWithoutOverflow) {
  DeltaHeads heads = random_heads(at::kFloat);
  heads.decay = at::full({kRows, kLength, kHeads}, -80.0F).requires_grad_();
  const at::Tensor result = delta_rule(heads, kSpans);
  torch::autograd::backward({result.sum()});
  EXPECT_TRUE(at::isfinite(result).all().item<bool>());
  EXPECT_TRUE(at::isfinite(heads.key.grad()).all().item<bool>());
  EXPECT_TRUE(at::isfinite(heads.decay.grad()).all().item<bool>());
}

TEST(DeltaRule, ADocumentHasTheSameBitsAloneAndPacked) {
  const at::NoGradGuard no_grad;
  const DeltaHeads heads = random_heads(at::kFloat);
  const at::Tensor packed = delta_rule(heads, kSpans);
  for (const AttentionSpan& span : kSpans) {
    const auto own = [&](const at::Tensor& values) {
      return values.narrow(0, span.row, 1).narrow(1, span.begin, span.length);
    };
    const DeltaHeads alone{own(heads.query), own(heads.key), own(heads.value), own(heads.beta),
                           own(heads.decay)};
    EXPECT_TRUE(at::equal(delta_rule(alone, {{0, 0, span.length}}), own(packed)));
  }
  EXPECT_EQ(packed[1].narrow(0, 0, 3).abs().max().item<double>(), 0) << "padding";
}

TEST(DeltaRule, GoesOnFromAState) {
  const at::NoGradGuard no_grad;
  const DeltaHeads heads = random_heads(at::kFloat);
  const at::Tensor whole = delta_rule(heads, {{0, 0, kLength}, {1, 0, kLength}});
  const at::Tensor state = at::zeros({kRows, kHeads, kKeyWidth, kWidth});
  std::int64_t begin = 0;
  for (const std::int64_t count : {70, 1, 1, 78}) {
    const auto part = [&](const at::Tensor& values) { return values.narrow(1, begin, count); };
    const DeltaHeads next{part(heads.query), part(heads.key), part(heads.value), part(heads.beta),
                          part(heads.decay)};
    EXPECT_LT(largest_difference(continue_delta_rule(next, state), part(whole)), 1e-5);
    begin += count;
  }
}

TEST(CausalConvolution, IsTheFormulaForwardAndBackward) {
  constexpr std::int64_t kChannels = 7;
  constexpr std::int64_t kTaps = 4;
  const auto make = [](std::uint64_t seed) {
    return std::pair(normal_values({kRows, kLength, kChannels}, seed, at::kDouble).requires_grad_(),
                     normal_values({kChannels, 1, kTaps}, seed + 1, at::kDouble).requires_grad_());
  };
  const auto [input, weight] = make(8);
  const auto [plain_input, plain_weight] = make(8);
  const at::Tensor result = causal_convolution(input, weight, kSpans);
  const at::Tensor slope = normal_values(result.sizes(), 10, at::kDouble);
  torch::autograd::backward({result}, {slope});
  for (const AttentionSpan& span : kSpans) {
    const auto own = [&](const at::Tensor& values) {
      return values.narrow(0, span.row, 1).narrow(1, span.begin, span.length);
    };
    const at::Tensor rows = at::constant_pad_nd(own(plain_input).transpose(1, 2), {kTaps - 1, 0});
    const at::Tensor expected =
        at::silu(at::conv1d(rows, plain_weight, {}, at::IntArrayRef{1}, at::IntArrayRef{0},
                            at::IntArrayRef{1}, kChannels))
            .transpose(1, 2);
    EXPECT_LT(largest_difference(own(result), expected), 1e-12);
    torch::autograd::backward({expected}, {own(slope)});
  }
  EXPECT_LT(largest_difference(input.grad(), plain_input.grad()), 1e-12);
  EXPECT_LT(largest_difference(weight.grad(), plain_weight.grad()), 1e-11);
}

}  // namespace
}  // namespace strait::kernels::delta_rule_test
