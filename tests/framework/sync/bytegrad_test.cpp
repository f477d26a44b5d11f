#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>

#include "tests/framework/sync/quadratic.h"
#include "tests/framework/sync/random_stage.h"
#include "tests/framework/sync/usual_settings.h"

namespace strait::sync {
namespace {

DirectRound::Maker byte_maker() {
  return [] { return make_method(usual("bytegrad")); };
}

TEST(ByteGrad, SumsGradientsToWithinAStep) {
  std::mt19937_64 random(1);
  for (std::size_t replicas = 1; replicas <= 9; ++replicas) {
    SCOPED_TRACE(replicas);
    DirectRound stage(random_layout(random), replicas, byte_maker());
    std::vector<double> sum(stage.replica(0).gradient.size());
    double steps = 0;
    for (std::size_t i = 0; i < replicas; ++i) {
      const auto gradient = random_values(stage.layout(), random);
      std::ranges::copy(gradient, stage.replica(i).gradient.begin());
      for (std::size_t j = 0; j < sum.size(); ++j) sum[j] += static_cast<double>(gradient[j]);
      const auto [least, largest] = std::ranges::minmax(gradient);
      steps += static_cast<double>(largest - least) / 255;
    }
    const auto [least, largest] = std::ranges::minmax(sum);
    steps += (largest - least) / 255;
    stage.pass({step_number(0), Hook::gradient});
    for (std::size_t j = 0; j < sum.size(); ++j) {
      // Twice the bound of one coding: it changes the extent of the second coding, too.
      ASSERT_NEAR(static_cast<double>(stage.replica(0).gradient[j]), sum[j], 2 * steps + 1e-6);
    }
  }
}

TEST(ByteGrad, NonFiniteGradientReachesEveryReplica) {
  std::mt19937_64 random(2);
  const Layout layout({{.name = "a", .shape = {100, 100}}});
  DirectRound stage(layout, 3, byte_maker());
  for (std::size_t i = 0; i < 3; ++i) {
    std::ranges::copy(random_values(layout, random), stage.replica(i).gradient.begin());
  }
  stage.replica(1).gradient[4321] = std::nanf("");
  stage.pass({step_number(0), Hook::gradient});
  for (std::size_t i = 0; i < 3; ++i) EXPECT_TRUE(std::isnan(stage.replica(i).gradient[4321]));
}

TEST(ByteGrad, Converges) {
  std::mt19937_64 random(3);
  DirectRound stage(random_layout(random), 4, byte_maker());
  start_at_random(stage, random);
  Quadratic problem(stage, 7, {});
  for (std::int64_t step = 0; step < 300; ++step) problem.step(step);
  EXPECT_LT(problem.distance(model_of(stage.replica(0))), 0.01);
}

}  // namespace
}  // namespace strait::sync
