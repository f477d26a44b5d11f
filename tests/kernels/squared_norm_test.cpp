#include "kernels/squared_norm.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "tests/kernels/random_values.h"

namespace strait::kernels::squared_norm_test {
namespace {

TEST(SquaredNorm, IsTheSumOfSquaresInDouble) {
  for (const std::int64_t count : {0, 1, 7, 8, 9, 1000, 100'003}) {
    const at::Tensor values = normal_values({count}, 11);
    const double expected = values.to(at::kDouble).square().sum().item<double>();
    EXPECT_NEAR(squared_norm(values), expected, 1e-12 * expected) << count;
  }
}

TEST(SquaredNorm, HasTheSameBitsAtAnyNumberOfThreads) {
  const at::Tensor values = normal_values({1 << 20}, 11);
  const int threads = at::get_num_threads();
  at::set_num_threads(1);
  const double one = squared_norm(values);
  at::set_num_threads(2);
  const double two = squared_norm(values);
  at::set_num_threads(threads);
  EXPECT_EQ(one, two);
}

TEST(SquaredNorm, LooksThroughStrides) {
  const at::Tensor values = normal_values({30, 50}, 11);
  EXPECT_EQ(squared_norm(values.t()), squared_norm(values.t().contiguous()));
}

TEST(SquaredNorm, TakesNarrowTypes) {
  const at::Tensor values = normal_values({500}, 11).to(at::kBFloat16);
  EXPECT_EQ(squared_norm(values), squared_norm(values.to(at::kFloat)));
}

TEST(SquaredNorm, DoesNotOverflowWhereFloat32Would) {
  const at::Tensor values = at::full({1000}, std::numeric_limits<float>::max());
  EXPECT_TRUE(std::isfinite(squared_norm(values)));
}

TEST(SquaredNorm, OfSeveralHaveTheBitsOfEach) {
  const std::vector<at::Tensor> values = {normal_values({17}, 11), normal_values({5, 9}, 11),
                                          normal_values({0}, 11)};
  const at::Tensor norms = squared_norms(values);
  ASSERT_EQ(norms.sizes(), at::IntArrayRef({3}));
  for (std::size_t i = 0; i < values.size(); ++i) {
    EXPECT_EQ(norms[static_cast<std::int64_t>(i)].item<double>(), squared_norm(values[i]));
  }
  EXPECT_EQ(squared_norms({}).numel(), 0);
}

TEST(SquaredNorm, IsNotFiniteIfOneValueIsNot) {
  for (const std::int64_t place : {0, 3, 4095, 4099}) {
    for (const float bad :
         {std::numeric_limits<float>::infinity(), -std::numeric_limits<float>::infinity(),
          std::numeric_limits<float>::quiet_NaN()}) {
      at::Tensor values = normal_values({4100}, 11);
      ASSERT_TRUE(std::isfinite(squared_norm(values)));
      values[place] = bad;
      EXPECT_FALSE(std::isfinite(squared_norm(values))) << bad << " at " << place;
    }
  }
}

}  // namespace
}  // namespace strait::kernels::squared_norm_test
