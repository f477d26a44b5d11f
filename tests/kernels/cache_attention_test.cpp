#include "kernels/cache_attention.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <hwy/targets.h>

#include <random>

#include "kernels/quantized_heads.h"
#include "kernels/random.h"

namespace strait::kernels::cache_attention_test {
namespace {

at::Tensor drawn(at::IntArrayRef sizes, std::uint64_t key) {
  at::Generator generator = keyed_generator(key, at::kCPU);
  return at::empty(sizes, at::kFloat).normal_(0, 1, generator);
}

struct Case {
  AttentionHeads heads;  // of float32
  AttentionRules rules;
};

Case random_case(std::mt19937& random) {
  const auto from_1_to = [&](std::int64_t most) {
    return 1 + static_cast<std::int64_t>(random()) % most;
  };
  const std::int64_t key_heads = from_1_to(4);
  const std::int64_t heads = key_heads * from_1_to(3);
  const std::int64_t tokens = from_1_to(150);
  const std::int64_t width = from_1_to(150);
  Case one;
  one.heads = {drawn({1, 1, heads, width}, random()),
               drawn({1, tokens, key_heads, width}, random()),
               drawn({1, tokens, key_heads, width}, random())};
  // Vectors of very different lengths, which share no scale.
  one.heads.key.mul_(drawn({1, tokens, key_heads, 1}, random()).exp_());
  one.heads.value.mul_(drawn({1, tokens, key_heads, 1}, random()).exp_());
  if (random() % 2 == 0) one.heads.sinks = drawn({heads}, random());
  one.rules.scale = 0.3;
  one.rules.window = random() % 2 == 0 ? from_1_to(100) : 0;
  one.rules.softcap = random() % 2 == 0 ? 3 : 0;
  return one;
}

// The formula in float64.
at::Tensor attended(const Case& one, const at::Tensor& keys, const at::Tensor& values) {
  const std::int64_t tokens = keys.size(1);
  const std::int64_t seen = one.rules.window > 0 ? std::min(one.rules.window, tokens) : tokens;
  const std::int64_t sharing = one.heads.query.size(2) / keys.size(2);
  const auto by_head = [&](const at::Tensor& all) {  // [heads, tokens, width]
    return all[0]
        .narrow(0, tokens - seen, seen)
        .transpose(0, 1)
        .to(at::kDouble)
        .repeat_interleave(sharing, 0);
  };
  const at::Tensor query = one.heads.query[0][0].to(at::kDouble).unsqueeze(1);
  at::Tensor scores = at::matmul(query, by_head(keys).transpose(1, 2)).mul_(one.rules.scale);
  if (one.rules.softcap > 0) scores = (scores / one.rules.softcap).tanh() * one.rules.softcap;
  if (one.heads.sinks.defined()) {
    scores = at::cat({scores, one.heads.sinks.to(at::kDouble).view({-1, 1, 1})}, 2);
  }
  const at::Tensor shares = scores.softmax(2).narrow(2, 0, seen);
  return at::matmul(shares, by_head(values)).squeeze(1);
}

double difference(const at::Tensor& got, const at::Tensor& wanted) {
  return (got[0][0] - wanted).abs().max().item<double>();
}

TEST(CacheAttention, IsTheFormulaInBothFormatsOnEveryInstructionSet) {
  for (const std::int64_t target : hwy::SupportedAndGeneratedTargets()) {
    hwy::SetSupportedTargetsForTest(target);
    std::mt19937 random(3);
    for (int i = 0; i < 40; ++i) {
      SCOPED_TRACE(testing::Message() << hwy::TargetName(target) << ", case " << i);
      const Case one = random_case(random);
      const AttentionHeads& whole = one.heads;
      const double most = 1e-5 * (1 + whole.value.abs().max().item<double>());
      EXPECT_LT(
          difference(attention_to_cache(whole, one.rules), attended(one, whole.key, whole.value)),
          most);
      const QuantizedHeads key = quantize_heads(whole.key);
      const QuantizedHeads value = quantize_heads(whole.value);
      const AttentionHeads kept{whole.query, key.values, value.values,
                                whole.sinks, key.scales, value.scales};
      ASSERT_TRUE(is_one_token(kept));
      EXPECT_LT(difference(attention_to_cache(kept, one.rules),
                           attended(one, dequantize_heads(key), dequantize_heads(value))),
                most);
    }
  }
  hwy::SetSupportedTargetsForTest(0);
}

TEST(QuantizedHeads, AreOffByHalfAScaleAtMost) {
  at::Tensor heads = drawn({7, 5, 33}, 1);
  heads[0].mul_(1e20);
  heads[1].mul_(1e-20);
  heads[2].zero_();
  const QuantizedHeads quantized = quantize_heads(heads);
  EXPECT_EQ(quantized.values.scalar_type(), at::kChar);
  const at::Tensor most = heads.abs().amax(-1, /*keepdim=*/true) * (0.5 / 127 + 1e-6);
  const at::Tensor off = (dequantize_heads(quantized) - heads).abs();
  EXPECT_TRUE((off <= most).all().item<bool>());
  // Each vector as if it were alone.
  const QuantizedHeads alone = quantize_heads(heads[4][2]);
  EXPECT_TRUE(at::equal(alone.values, quantized.values[4][2]));
  EXPECT_TRUE(at::equal(alone.scales, quantized.scales[4][2]));
}

}  // namespace
}  // namespace strait::kernels::cache_attention_test
