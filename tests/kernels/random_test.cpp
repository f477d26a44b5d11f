#include "kernels/random.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include <set>
#include <vector>

namespace strait::kernels::random_test {
namespace {

constexpr DropoutKey kKey{7, 3, 2, 5, 1};

TEST(Dropout, TheMaskIsAFunctionOfItsKey) {
  const at::Tensor mask = keep_mask({64, 33}, 0.3, kKey, at::kCPU);
  EXPECT_TRUE(at::equal(mask, keep_mask({64, 33}, 0.3, kKey, at::kCPU)));
}

TEST(Dropout, EveryPartOfTheKeyCounts) {
  std::vector<DropoutKey> keys(6, kKey);
  ++keys[1].seed;
  ++keys[2].step;
  ++keys[3].micro_batch;
  ++keys[4].layer;
  ++keys[5].site;
  for (std::size_t i = 0; i < keys.size(); ++i) {
    for (std::size_t j = 0; j < i; ++j) {
      EXPECT_FALSE(at::equal(keep_mask({1000}, 0.5, keys[i], at::kCPU),
                             keep_mask({1000}, 0.5, keys[j], at::kCPU)))
          << i << " and " << j;
    }
  }
}

TEST(Dropout, TheDefaultGeneratorStaysAsItIs) {
  at::Generator standard = at::globalContext().defaultGenerator(at::kCPU);
  const at::Tensor before = standard.get_state();
  keep_mask({1000}, 0.5, kKey, at::kCPU);
  EXPECT_TRUE(at::equal(before, standard.get_state()));
}

TEST(Dropout, TheMaskDoesNotDependOnTheNumberOfThreads) {
  const int threads = at::get_num_threads();
  at::set_num_threads(1);
  const at::Tensor one = keep_mask({1 << 18}, 0.1, kKey, at::kCPU);
  at::set_num_threads(2);
  const at::Tensor two = keep_mask({1 << 18}, 0.1, kKey, at::kCPU);
  at::set_num_threads(threads);
  EXPECT_TRUE(at::equal(one, two));
}

TEST(Dropout, KeepsTheShareItIsAskedFor) {
  constexpr std::int64_t kCount = 1'000'000;
  for (const double probability : {0.1, 0.5, 0.9}) {
    const at::Tensor mask = keep_mask({kCount}, probability, kKey, at::kCPU);
    const double kept = mask.sum().item<double>() / kCount;
    EXPECT_NEAR(kept, 1 - probability, 0.003);  // six standard deviations
  }
}

TEST(Dropout, ScalesWhatItKeepsAndItsGradientToo) {
  const at::Tensor input = at::ones({4, 50}).requires_grad_();
  const at::Tensor output = dropout(input, 0.2, kKey);
  const at::Tensor expected = keep_mask({4, 50}, 0.2, kKey, at::kCPU).to(at::kFloat) * 1.25;
  EXPECT_TRUE(at::equal(output, expected));
  torch::autograd::backward({output.sum()});
  EXPECT_TRUE(at::equal(input.grad(), expected));
}

TEST(Dropout, ZeroIsTheInputItselfAndOneIsNothing) {
  const at::Tensor input = at::ones({10});
  EXPECT_TRUE(dropout(input, 0.0, kKey).is_same(input));
  EXPECT_EQ(dropout(input, 1.0, kKey).abs().max().item<double>(), 0.0);
}

TEST(Dropout, KeepsTheTypeOfItsInput) {
  const at::Tensor input = at::ones({10}, at::kBFloat16);
  EXPECT_EQ(dropout(input, 0.5, kKey).scalar_type(), at::kBFloat16);
}

TEST(RandomKey, DependsOnEveryPartAndItsPlace) {
  std::set<std::uint64_t> keys;
  for (std::uint64_t first = 0; first < 40; ++first) {
    for (std::uint64_t second = 0; second < 40; ++second) keys.insert(mix_key({first, second}));
  }
  keys.insert(mix_key({0}));
  keys.insert(mix_key({0, 0, 0}));
  EXPECT_EQ(keys.size(), 1602U);
}

TEST(RandomKey, NamesHashApart) {
  EXPECT_NE(hash_name("transformer.h.1.ln_1"), hash_name("transformer.h.1.ln_2"));
  EXPECT_NE(hash_name(""), hash_name(std::string_view("\0", 1)));
}

}  // namespace
}  // namespace strait::kernels::random_test
