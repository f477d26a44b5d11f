#define HWY_COMPILE_ALL_ATTAINABLE
#include "kernels/averaged_adamw.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <ATen/core/grad_mode.h>
#include <gtest/gtest.h>
#include <hwy/highway.h>

#include <vector>

#include "kernels/random.h"

namespace strait::kernels::averaged_adamw_test {
namespace {

constexpr std::int64_t kCount = 20'003;

struct Copy {
  explicit Copy(std::int64_t count = kCount)
      : weights(at::zeros({count})), first(at::zeros({count})), second(at::zeros({count})) {}

  at::Tensor weights;
  at::Tensor first;
  at::Tensor second;
};

AveragedAdamW settings(std::int64_t updates, std::int64_t copies) {
  return {.learning_rate = 0.01,
          .beta1 = 0.9,
          .beta2 = 0.95,
          .epsilon = 1e-8,
          .weight_decay = 0.1,
          .updates = updates,
          .copies = copies};
}

void step(Copy& copy, const at::Tensor& gradient, std::int64_t updates, std::int64_t copies) {
  averaged_adamw(copy.weights, gradient, copy.first, copy.second, settings(updates, copies));
}

at::Generator generator_of(std::uint64_t seed) { return keyed_generator(seed, at::kCPU); }

TEST(AveragedAdamW, OfOneCopyIsAdamW) {
  const at::NoGradGuard no_grad;
  at::Generator generator = generator_of(3);
  Copy copy;
  Copy plain;
  at::Tensor updates = at::zeros({});
  for (std::int64_t made = 1; made <= 20; ++made) {
    const at::Tensor gradient = at::randn({kCount}, generator);
    step(copy, gradient, made, 1);
    updates.add_(1);
    at::_fused_adamw_({plain.weights}, {gradient}, {plain.first}, {plain.second}, {}, {updates},
                      0.01, 0.9, 0.95, 0.1, 1e-8, false, false);
  }
  EXPECT_TRUE(at::allclose(copy.weights, plain.weights, 1e-5, 1e-7));
  EXPECT_TRUE(at::allclose(copy.first, plain.first, 1e-5, 1e-7));
  EXPECT_TRUE(at::allclose(copy.second, plain.second, 1e-5, 1e-7));
}

// Copies whose gradients are one signal and noise of their own: the mean of their steps is as long
// as AdamW's on the mean gradient, where plain AdamW's would be up to half of that among four.
class AmongCopies : public testing::TestWithParam<std::tuple<int, double>> {};

double length_of(const std::vector<Copy>& copies) {
  at::Tensor sum = at::zeros({kCount});
  for (const Copy& copy : copies) sum += copy.weights;
  return (sum.sum() / (static_cast<double>(copies.size()) * kCount)).item<double>();
}

TEST_P(AmongCopies, StepsAreAsLongAsThoseOfTheMeanGradient) {
  const auto& [count, noise] = GetParam();
  const auto number = static_cast<std::size_t>(count);
  at::Generator generator = generator_of(7);
  std::vector<Copy> corrected(number);
  std::vector<Copy> own(number);
  std::vector<Copy> whole(1);
  for (std::int64_t made = 1; made <= 60; ++made) {
    at::Tensor mean = at::zeros({kCount});
    for (std::size_t i = 0; i < number; ++i) {
      const at::Tensor gradient = at::randn({kCount}, generator) * noise + 1;
      step(corrected[i], gradient, made, count);
      step(own[i], gradient, made, 1);
      mean += gradient / count;
    }
    step(whole[0], mean, made, 1);
  }
  const double expected = length_of(whole);
  const double missed = std::abs(length_of(own) / expected - 1);
  EXPECT_NEAR(length_of(corrected) / expected, 1, 0.12);
  EXPECT_LT(std::abs(length_of(corrected) / expected - 1), missed);
}

INSTANTIATE_TEST_SUITE_P(, AmongCopies,
                         testing::Combine(testing::Values(2, 4, 16),
                                          testing::Values(0.3, 1.0, 3.0)));

TEST(AveragedAdamW, HasTheSameBitsAtAnyNumberOfThreads) {
  const int threads = at::get_num_threads();
  constexpr std::int64_t kMany = 10 * kCount;  // more than one thread's share
  std::vector<Copy> copies(2, Copy(0));
  for (int i = 0; i < 2; ++i) {
    copies[static_cast<std::size_t>(i)] = Copy(kMany);
    at::set_num_threads(i + 1);
    at::Generator generator = generator_of(5);
    for (std::int64_t made = 1; made <= 3; ++made) {
      step(copies[static_cast<std::size_t>(i)], at::randn({kMany}, generator), made, 4);
    }
  }
  at::set_num_threads(threads);
  EXPECT_TRUE(at::equal(copies[0].weights, copies[1].weights));
  EXPECT_TRUE(at::equal(copies[0].second, copies[1].second));
}

TEST(AveragedAdamW, HasTheSameBitsOnEveryProcessor) {
  std::vector<at::Tensor> ends;
  for (const std::int64_t target : hwy::SupportedAndGeneratedTargets()) {
    hwy::SetSupportedTargetsForTest(target);
    at::Generator generator = generator_of(9);
    Copy copy;
    for (std::int64_t made = 1; made <= 3; ++made) {
      step(copy, at::randn({kCount}, generator), made, 4);
    }
    ends.push_back(copy.weights);
  }
  hwy::SetSupportedTargetsForTest(0);
  ASSERT_GT(ends.size(), 1U);
  for (const at::Tensor& end : ends) EXPECT_TRUE(at::equal(end, ends.front()));
}

// A gradient of zero, a single one that is not, and very small and large ones, up to those whose
// squares are infinite.
TEST(AveragedAdamW, StaysFinite) {
  for (const std::int64_t target : hwy::SupportedAndGeneratedTargets()) {
    hwy::SetSupportedTargetsForTest(target);
    for (const double beta1 : {0.9, 0.0, 1e-9}) {
      for (const float size : {0.0F, 1e-20F, 1e-8F, 1e15F, 2e19F, 1e38F}) {
        Copy copy(37);
        AveragedAdamW how = settings(1, 8);
        how.beta1 = beta1;
        for (; how.updates <= 50; ++how.updates) {
          const bool alone = how.updates == 10;
          averaged_adamw(copy.weights, alone ? at::full({37}, size) : at::zeros({37}), copy.first,
                         copy.second, how);
        }
        EXPECT_TRUE(at::isfinite(copy.weights).all().item<bool>()) << size << " at " << beta1;
      }
    }
  }
  hwy::SetSupportedTargetsForTest(0);
}

}  // namespace
}  // namespace strait::kernels::averaged_adamw_test
