#include "kernels/causal_attention.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <ATen/core/grad_mode.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include <limits>
#include <set>

#include "kernels/random.h"
#include "tests/kernels/random_values.h"

namespace strait::kernels::causal_attention_test {
namespace {

struct AttentionCase {
  std::int64_t heads = 1;
  std::int64_t key_heads = 1;
  std::int64_t length = 1;
  std::vector<AttentionSpan> spans;
  AttentionRules rules;
  bool sinks = false;
};

AttentionHeads heads_of(const AttentionCase& one, at::ScalarType type) {
  constexpr std::int64_t kRows = 2;
  constexpr std::int64_t kWidth = 6;
  const auto make = [&](std::int64_t heads, std::uint64_t seed) {
    return normal_values({kRows, one.length, heads, kWidth}, seed, at::kDouble)
        .to(type)
        .requires_grad_();
  };
  AttentionHeads heads{make(one.heads, 1), make(one.key_heads, 2), make(one.key_heads, 3)};
  if (one.sinks) {
    heads.sinks = normal_values({one.heads}, 4, at::kDouble).to(type).requires_grad_();
  }
  return heads;
}

// Written from the formula: a mask over the whole row, all scores at once.
at::Tensor plain_attention(const AttentionHeads& heads, const AttentionCase& one) {
  const std::int64_t group = one.heads / one.key_heads;
  const auto by_head = [](const at::Tensor& values) { return values.transpose(1, 2); };
  const at::Tensor key = by_head(heads.key).repeat_interleave(group, 1);
  const at::Tensor value = by_head(heads.value).repeat_interleave(group, 1);
  at::Tensor scores = at::matmul(by_head(heads.query), key.transpose(2, 3)) * one.rules.scale;
  if (one.rules.softcap > 0) scores = at::tanh(scores / one.rules.softcap) * one.rules.softcap;
  at::Tensor allowed = at::zeros({2, 1, one.length, one.length}, at::kBool);
  at::Tensor inside = at::zeros({2, one.length, 1, 1}, scores.options().requires_grad(false));
  for (const AttentionSpan& span : one.spans) {
    for (std::int64_t i = 0; i < span.length; ++i) {
      inside[span.row][span.begin + i].fill_(1);
      for (std::int64_t j = 0; j <= i; ++j) {
        if (one.rules.window > 0 && i - j >= one.rules.window) continue;
        allowed[span.row][0][span.begin + i][span.begin + j].fill_(true);
      }
    }
  }
  scores = scores.masked_fill(allowed.logical_not(), -1e300);
  if (heads.sinks.defined()) {
    const at::Tensor sinks = heads.sinks.view({1, -1, 1, 1}).expand({2, -1, one.length, 1});
    scores = at::cat({scores, sinks}, -1);
  }
  return at::matmul(at::softmax(scores, -1).narrow(-1, 0, one.length), value).transpose(1, 2) *
         inside;
}

// Each slice attends to the keys up to its end; `cuts`: where slices but the first begin.
at::Tensor attention_by_slices(const AttentionHeads& heads, const AttentionCase& one,
                               const std::vector<std::int64_t>& cuts) {
  std::vector<at::Tensor> slices;
  std::int64_t begin = 0;
  for (std::size_t i = 0; i <= cuts.size(); ++i) {
    const std::int64_t end = i < cuts.size() ? cuts[i] : one.length;
    std::vector<AttentionSpan> spans;
    for (const AttentionSpan& document : one.spans) {
      const std::int64_t first = std::max(document.begin, begin);
      const std::int64_t last = std::min(document.begin + document.length, end);
      if (first >= last) continue;
      spans.push_back({document.row, first - begin, last - first, first - document.begin});
    }
    slices.push_back(
        causal_attention({heads.query.narrow(1, begin, end - begin), heads.key.narrow(1, 0, end),
                          heads.value.narrow(1, 0, end), heads.sinks},
                         spans, one.rules));
    begin = end;
  }
  return at::cat(slices, 1);
}

auto drawing(std::uint64_t seed) {
  return [generator = keyed_generator(mix_key({seed, 77}), at::kCPU)](std::int64_t low,
                                                                      std::int64_t high) {
    return at::empty({1}, at::kLong).random_(low, high + 1, generator).item<std::int64_t>();
  };
}

AttentionCase random_case(std::uint64_t seed) {
  const auto draw = drawing(seed);
  AttentionCase one;
  one.key_heads = draw(1, 3);
  one.heads = one.key_heads * draw(1, 3);
  one.length = draw(1, 400);
  for (std::int64_t row = 0; row < 2; ++row) {
    std::int64_t begin = 0;
    while (begin < one.length && draw(0, 4) > 0) {
      const std::int64_t length = draw(1, one.length - begin);
      one.spans.push_back({row, begin, length});
      begin += length;
    }
  }
  one.rules.scale = 0.4;
  if (draw(0, 1) == 1) one.rules.window = draw(1, 80);
  if (draw(0, 2) == 0) one.rules.softcap = 1.5;
  one.sinks = draw(0, 1) == 1;
  return one;
}

TEST(CausalAttention, EqualsTheFormulaForRandomDocumentsHeadsWindowsCapsAndSinks) {
  for (std::uint64_t seed = 0; seed < 40; ++seed) {
    const AttentionCase one = random_case(seed);
    const AttentionHeads ours = heads_of(one, at::kDouble);
    const AttentionHeads theirs = heads_of(one, at::kDouble);
    const at::Tensor result = causal_attention(ours, one.spans, one.rules);
    const at::Tensor expected = plain_attention(theirs, one);
    ASSERT_LT(largest_difference(result, expected), 1e-12) << "seed " << seed;
    const at::Tensor slope = normal_values(result.sizes(), seed + 100, at::kDouble);
    torch::autograd::backward({result}, {slope});
    torch::autograd::backward({expected}, {slope});
    ASSERT_LT(largest_difference(ours.query.grad(), theirs.query.grad()), 1e-11) << "seed " << seed;
    ASSERT_LT(largest_difference(ours.key.grad(), theirs.key.grad()), 1e-11) << "seed " << seed;
    ASSERT_LT(largest_difference(ours.value.grad(), theirs.value.grad()), 1e-11) << "seed " << seed;
    if (!one.sinks || one.spans.empty()) continue;
    ASSERT_LT(largest_difference(ours.sinks.grad(), theirs.sinks.grad()), 1e-11) << "seed " << seed;
  }
}

// The gradients of keys and values are sums over the slices that attend to them.
TEST(CausalAttention, OfSlicesOfRowsIsThatOfTheRows) {
  for (std::uint64_t seed = 0; seed < 40; ++seed) {
    const AttentionCase one = random_case(seed);
    const auto draw = drawing(seed + 1000);
    std::set<std::int64_t> cuts;
    for (std::int64_t i = draw(1, 4); i > 0 && one.length > 1; --i) {
      cuts.insert(draw(1, one.length - 1));
    }
    const at::ScalarType type = seed % 2 == 0 ? at::kDouble : at::kFloat;
    const double tolerance = type == at::kDouble ? 1e-12 : 1e-5;
    const AttentionHeads sliced = heads_of(one, type);
    const AttentionHeads whole = heads_of(one, type);
    const at::Tensor result = attention_by_slices(sliced, one, {cuts.begin(), cuts.end()});
    const at::Tensor expected = causal_attention(whole, one.spans, one.rules);
    ASSERT_LT(largest_difference(result, expected), tolerance) << "seed " << seed;
    const at::Tensor slope = normal_values(result.sizes(), seed + 100, at::kDouble).to(type);
    torch::autograd::backward({result}, {slope});
    torch::autograd::backward({expected}, {slope});
    std::vector<std::pair<at::Tensor, at::Tensor>> leaves{
        {sliced.query, whole.query}, {sliced.key, whole.key}, {sliced.value, whole.value}};
    if (one.sinks) leaves.emplace_back(sliced.sinks, whole.sinks);
    for (const auto& [ours, theirs] : leaves) {
      const double largest = std::max(1.0, theirs.grad().abs().max().item<double>());
      ASSERT_LT(largest_difference(ours.grad(), theirs.grad()), tolerance * largest)
          << "seed " << seed;
    }
  }
}

TEST(CausalAttention, OfSlicesAllowsNoPastThatIsNotThere) {
  AttentionCase one;
  one.length = 8;
  AttentionHeads heads = heads_of(one, at::kFloat);
  heads.query = heads.query.narrow(1, 5, 3);
  EXPECT_NO_THROW(causal_attention(heads, {{0, 0, 3, 5}}, {}));
  EXPECT_THROW(causal_attention(heads, {{0, 0, 3, 6}}, {}), c10::Error);
  EXPECT_THROW(causal_attention(heads, {{0, 1, 2, 1}}, {}), c10::Error);
  std::swap(heads.query, heads.key);
  heads.value = heads.key;
  EXPECT_THROW(causal_attention(heads, {{0, 0, 3}}, {}), c10::Error);
}

TEST(CausalAttention, GivesTheSameBitsForAnyNumberOfThreads) {
  for (const double softcap : {0.0, 2.0}) {
    AttentionCase one;
    one.heads = 4;
    one.key_heads = 2;
    one.length = 300;
    one.spans = {{0, 0, 300}, {1, 0, 120}, {1, 120, 99}};
    one.rules.softcap = softcap;
    std::vector<at::Tensor> results;
    std::vector<at::Tensor> gradients;
    const int before = at::get_num_threads();
    for (const int threads : {1, 2, 3}) {
      at::set_num_threads(threads);
      const AttentionHeads heads = heads_of(one, at::kFloat);
      results.push_back(at::cat({causal_attention(heads, one.spans, one.rules),
                                 attention_by_slices(heads, one, {110, 170})}));
      torch::autograd::backward({results.back().sin().sum()});
      gradients.push_back(heads.key.grad());
    }
    at::set_num_threads(before);
    EXPECT_TRUE(at::equal(results[0], results[1]) && at::equal(results[0], results[2]));
    EXPECT_TRUE(at::equal(gradients[0], gradients[1]) && at::equal(gradients[0], gradients[2]));
  }
}

// Every query looks at all keys alike. Each block adds less to the first value's gradient than half
// a unit in the last place of what the first block has added: in bfloat16 the sum stood still.
TEST(CausalAttention, SumsNarrowGradientsOfKeysAndValuesOverBlocksInFloat32) {
  constexpr std::int64_t kTokens = 256;
  constexpr std::int64_t kHeads = 512;  // enough for a block to have the fewest queries
  constexpr std::int64_t kBlock = 16;
  const auto options = at::TensorOptions(at::kBFloat16);
  const auto zeros = [&] { return at::zeros({1, kTokens, kHeads, 2}, options).requires_grad_(); };
  const AttentionHeads heads{zeros(), zeros(), zeros()};
  AttentionRules rules;
  rules.softcap = 1;
  const at::Tensor result = causal_attention(heads, {{0, 0, kTokens}}, rules);
  at::Tensor weights = at::arange(1, kTokens + 1).to(at::kDouble);
  weights.narrow(0, 0, kBlock).mul_(600);
  weights = weights.to(at::kBFloat16);
  torch::autograd::backward({result}, {weights.view({1, kTokens, 1, 1}).expand_as(result)});
  const double expected =
      weights.to(at::kDouble).div(at::arange(1, kTokens + 1)).sum().item<double>();
  const double got = heads.value.grad()[0][0][0][0].item<double>();
  EXPECT_NEAR(got / expected, 1, 0.01);
}

// What dropout leaves is scaled, so that its expected value is the value itself.
TEST(CausalAttention, KeepsTheExpectedValueUnderDropout) {
  AttentionCase one;
  one.heads = one.key_heads = 8;
  one.length = 200;
  one.spans = {{0, 0, 200}, {1, 0, 200}};
  one.rules.dropout = 0.3;
  const at::NoGradGuard no_grad;
  AttentionHeads heads = heads_of(one, at::kDouble);
  heads.query = at::zeros_like(heads.query);  // every key counts alike
  heads.value = at::ones_like(heads.value);
  const at::Tensor result = causal_attention(heads, one.spans, one.rules);
  EXPECT_GT(result.std().item<double>(), 0.05) << "nothing was dropped";
  EXPECT_NEAR(result.mean().item<double>(), 1, 0.02);
}

// The gradient is that of the mask that the forward drew: over a linear function it agrees with
// finite steps.
TEST(CausalAttention, DropsTheSameProbabilitiesInForwardAndBackward) {
  AttentionCase one;
  one.length = 50;
  one.spans = {{0, 0, 40, 10}, {1, 3, 30}};
  one.rules.dropout = 0.3;
  AttentionHeads heads = heads_of(one, at::kDouble);
  heads.query = heads.query.detach().narrow(1, 10, 40).clone().requires_grad_();
  const at::Tensor result = causal_attention(heads, one.spans, one.rules);
  EXPECT_TRUE(at::equal(result, causal_attention(heads, one.spans, one.rules)));
  const at::Tensor slope = normal_values(result.sizes(), 9, at::kDouble);
  torch::autograd::backward({(result * slope).sum()});
  const at::NoGradGuard no_grad;
  constexpr double kStep = 1e-6;
  for (const at::Tensor& leaf : {heads.query, heads.key, heads.value}) {
    const at::Tensor direction = normal_values(leaf.sizes(), 10, at::kDouble);
    const auto value_at = [&](double by) {
      AttentionHeads moved = heads;
      for (at::Tensor* part : {&moved.query, &moved.key, &moved.value}) {
        if (part->is_same(leaf)) *part = leaf + direction * by;
      }
      return (causal_attention(moved, one.spans, one.rules) * slope).sum().item<double>();
    };
    const double measured = (value_at(kStep) - value_at(-kStep)) / (2 * kStep);
    EXPECT_NEAR((leaf.grad() * direction).sum().item<double>(), measured, 1e-5);
  }
  one.rules.dropout_key.step = 1;
  EXPECT_FALSE(at::equal(result, causal_attention(heads, one.spans, one.rules)));
}

TEST(CausalAttention, OverACacheIsTheEndOfTheWhole) {
  for (std::uint64_t seed = 0; seed < 10; ++seed) {
    AttentionCase one = random_case(seed);
    one.spans = {{0, 0, one.length}, {1, 0, one.length}};
    const AttentionHeads heads = heads_of(one, at::kDouble);
    const at::Tensor whole = causal_attention(heads, one.spans, one.rules);
    const std::int64_t last = std::min<std::int64_t>(one.length, 3);
    AttentionHeads end = heads;
    end.query = heads.query.narrow(1, one.length - last, last);
    EXPECT_LT(largest_difference(attention_to_cache(end, one.rules),
                                 whole.narrow(1, one.length - last, last)),
              1e-12);
    // One token of one row in float32, as generation asks for it.
    AttentionHeads token = heads_of(one, at::kFloat);
    token.query = token.query.narrow(0, 0, 1).narrow(1, one.length - 1, 1);
    token.key = token.key.narrow(0, 0, 1);
    token.value = token.value.narrow(0, 0, 1);
    const at::Tensor wanted = whole.narrow(0, 0, 1).narrow(1, one.length - 1, 1);
    EXPECT_LT(largest_difference(attention_to_cache(token, one.rules).to(at::kDouble), wanted),
              1e-5);
  }
}

}  // namespace
}  // namespace strait::kernels::causal_attention_test
