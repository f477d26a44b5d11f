#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>

#include "framework/sync/sync_error.h"
#include "tests/framework/sync/quadratic.h"
#include "tests/framework/sync/random_stage.h"
#include "tests/framework/sync/usual_settings.h"

namespace strait::sync {
namespace {

constexpr std::int64_t kWarm = 4;
constexpr std::int64_t kRun = 15 * kWarm;  // steps, a fifteenth of which warms up

DirectRound::Maker onebit_maker() {
  SyncSettings settings = usual("onebit_adam");
  settings.steps = kRun;
  return [settings] { return make_method(settings); };
}

TEST(OnebitAdam, AveragesGradientsExactlyDuringWarmup) {
  std::mt19937_64 random(1);
  for (std::size_t replicas = 1; replicas <= 9; ++replicas) {
    DirectRound stage(random_layout(random), replicas, onebit_maker());
    std::vector<double> mean(stage.replica(0).gradient.size());
    for (std::size_t i = 0; i < replicas; ++i) {
      std::ranges::copy(random_values(stage.layout(), random), stage.replica(i).gradient.begin());
      for (std::size_t j = 0; j < mean.size(); ++j) {
        mean[j] +=
            static_cast<double>(stage.replica(i).gradient[j]) / static_cast<double>(replicas);
      }
    }
    ASSERT_TRUE(stage.pass({step_number(kWarm - 1), Hook::clipped}));
    for (std::size_t j = 0; j < mean.size(); ++j) {
      ASSERT_NEAR(static_cast<double>(stage.replica(replicas - 1).gradient[j]), mean[j], 1e-6);
    }
  }
}

TEST(OnebitAdam, UpdateRuleChangesAfterWarmup) {
  const auto method = onebit_maker()();
  EXPECT_EQ(method->update_rule(step_number(kWarm - 1)), UpdateRule::adamw);
  EXPECT_EQ(method->update_rule(step_number(kWarm)), UpdateRule::moment_given);
  SyncSettings settings = usual("onebit_adam");
  settings.steps = 150;
  EXPECT_EQ(make_method(settings)->update_rule(step_number(9)), UpdateRule::adamw);
  EXPECT_EQ(make_method(settings)->update_rule(step_number(10)), UpdateRule::moment_given);
}

// What one step adds to the mean of all replicas.
std::vector<double> result_and_residual(DirectRound& stage, bool before) {
  std::vector<double> sum(stage.replica(0).weights.size());
  const auto count = static_cast<double>(stage.size());
  for (std::size_t i = 0; i < stage.size(); ++i) {
    DirectReplica& replica = stage.replica(i);
    const auto residual = replica.slots.values("owed");
    const auto server = replica.slots.values("server_owed");
    for (std::size_t j = 0; j < sum.size(); ++j) {
      const double moment = before ? 0.9 * static_cast<double>(replica.first_moment[j]) +
                                         0.1 * static_cast<double>(replica.gradient[j])
                                   : static_cast<double>(replica.first_moment[j]);
      sum[j] +=
          (moment + static_cast<double>(residual[j])) / count + static_cast<double>(server[j]);
    }
  }
  return sum;
}

TEST(OnebitAdam, ResultAndResidualSumToTheInput) {
  std::mt19937_64 random(2);
  for (std::size_t replicas = 1; replicas <= 9; ++replicas) {
    SCOPED_TRACE(replicas);
    DirectRound stage(random_layout(random), replicas, onebit_maker());
    const auto drawn = random_values(stage.layout(), random);
    for (std::size_t i = 0; i < replicas; ++i) {
      for (std::size_t j = 0; j < drawn.size(); ++j) {
        // Spreads that no moment exceeds by much, as with a second moment of the same gradients.
        const float spread = drawn[j] == 0 ? 0 : 0.5F + std::abs(drawn[j]);
        stage.replica(i).second_moment[j] = spread * spread;
      }
    }
    for (std::int64_t step = kWarm; step < kWarm + 30; ++step) {
      for (std::size_t i = 0; i < replicas; ++i) {
        std::ranges::copy(random_values(stage.layout(), random), stage.replica(i).gradient.begin());
      }
      const auto before = result_and_residual(stage, true);
      ASSERT_TRUE(stage.pass({step_number(step), Hook::clipped}));
      const auto after = result_and_residual(stage, false);
      for (std::size_t j = 0; j < before.size(); ++j) ASSERT_NEAR(after[j], before[j], 2e-4);
    }
  }
}

TEST(OnebitAdam, WeightsWithoutSecondMomentNeverMove) {
  std::mt19937_64 random(3);
  const Layout layout({{.name = "rows", .shape = {60, 50}}});
  DirectRound stage(layout, 3, onebit_maker());
  start_at_random(stage, random);
  const std::vector<float> first = stage.replica(0).weights;
  for (std::int64_t step = 0; step < 40; ++step) {
    for (std::size_t i = 0; i < stage.size(); ++i) {
      DirectReplica& replica = stage.replica(i);
      std::ranges::copy(random_values(layout, random), replica.gradient.begin());
      // The rows of tokens that did not occur in the warm-up.
      std::ranges::fill(std::span(replica.gradient).first(1000), 0.0F);
    }
    stage.pass({step_number(step), Hook::clipped});
    for (std::size_t i = 0; i < stage.size(); ++i) {
      DirectReplica& replica = stage.replica(i);
      for (std::size_t j = 0; j < first.size() && step < kWarm; ++j) {
        replica.first_moment[j] = 0.9F * replica.first_moment[j] + 0.1F * replica.gradient[j];
        replica.second_moment[j] += replica.gradient[j] * replica.gradient[j];
      }
      for (std::size_t j = 0; j < 1000; ++j) ASSERT_EQ(replica.first_moment[j], 0);
    }
  }
}

// Gradients of weights with a frozen second moment near zero must not affect the weights in the
// same group, nor move these weights far, nor let their residual grow.
TEST(OnebitAdam, TinySecondMomentDoesNotAffectOtherWeights) {
  const Layout layout({{.name = "rows", .shape = {16, 128}}});
  constexpr std::size_t kRow = 128;
  const auto move = [&](float second) {
    DirectRound stage(layout, 2, onebit_maker());
    std::mt19937_64 random(8);
    for (std::size_t i = 0; i < 2; ++i) {
      std::ranges::fill(stage.replica(i).second_moment, 1e-6F);
      std::ranges::fill(std::span(stage.replica(i).second_moment).first(kRow), second);
    }
    double others = 0;
    double most = 0;
    for (std::int64_t step = kWarm; step < kWarm + 200; ++step) {
      for (std::size_t i = 0; i < 2; ++i) {
        std::ranges::copy(random_values(layout, random, 1e-3), stage.replica(i).gradient.begin());
      }
      stage.pass({step_number(step), Hook::clipped});
      const DirectReplica& replica = stage.replica(0);
      for (std::size_t j = 0; j < replica.first_moment.size(); ++j) {
        if (replica.second_moment[j] == 0) continue;
        const double moved = std::abs(static_cast<double>(replica.first_moment[j])) /
                             std::sqrt(static_cast<double>(replica.second_moment[j]));
        if (j >= kRow) others += moved;
        most = std::max(most, moved);
      }
    }
    EXPECT_LT(most, 10) << second;
    return others / 200 / (16 * 128 - kRow);
  };
  const double usual = move(1e-6F);
  for (const float second : {0.0F, 1e-38F, 1e-30F, 1e-18F, 1e-12F, 1e-8F}) {
    EXPECT_LT(move(second) / usual, 2.6) << second;
  }
}

TEST(OnebitAdam, RefusesSettingsOutOfRange) {
  SyncSettings settings = usual("onebit_adam");
  settings.beta1 = 1;
  EXPECT_THROW(make_method(settings), SyncError);
}

TEST(OnebitAdam, Converges) {
  std::mt19937_64 random(4);
  SyncSettings settings = usual("onebit_adam");
  settings.steps = 15 * 40;
  DirectRound stage(random_layout(random), 4, [settings] { return make_method(settings); });
  start_at_random(stage, random);
  Quadratic problem(stage, 7, {.learning_rate = 0.01F, .adam = true});
  const double away = problem.distance(model_of(stage.replica(0)));
  for (std::int64_t step = 0; step < 1000; ++step) problem.step(step);
  // Signs add noise in proportion to the learning rate, which decays.
  problem.set_learning_rate(0.001F);
  for (std::int64_t step = 1000; step < 2000; ++step) problem.step(step);
  EXPECT_LT(problem.distance(model_of(stage.replica(0))), 0.03 * away);
}

}  // namespace
}  // namespace strait::sync
