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

DirectRound::Maker diloco_maker(const SyncSettings& settings) {
  return [settings] { return make_method(settings); };
}

std::vector<std::int64_t> opening_steps(const SyncSettings& settings, std::int64_t steps) {
  const auto method = make_method(settings);
  const Layout layout({{.name = "a", .shape = {3}}});
  std::vector<std::int64_t> opened;
  for (std::int64_t step = 0; step < steps; ++step) {
    EXPECT_FALSE(method->plan({step_number(step), Hook::gradient}, layout, {}));
    EXPECT_FALSE(method->plan({step_number(step), Hook::model_read}, layout, {}));
    if (method->plan({step_number(step), Hook::update}, layout, {})) opened.push_back(step);
  }
  return opened;
}

TEST(Diloco, OpensRoundsEveryNUpdatesAndAfterTheLast) {
  SyncSettings settings = usual("diloco");
  settings.every = 4;
  settings.steps = 10;
  EXPECT_EQ(opening_steps(settings, 10), (std::vector<std::int64_t>{3, 7, 9}));
  settings.every = 0;
  settings.steps = 0;
  EXPECT_EQ(opening_steps(settings, 250), (std::vector<std::int64_t>{99, 199}));
}

// The formula, in double, over several rounds.
TEST(Diloco, ReferenceTakesNesterovStepAlongMeanChange) {
  std::mt19937_64 random(1);
  for (const bool narrow : {false, true}) {
    for (std::size_t replicas = 1; replicas <= 9; replicas += 2) {
      SyncSettings settings = usual("diloco");
      settings.every = 1;
      settings.narrow_wire = narrow;
      settings.outer_learning_rate = 0.6;
      settings.outer_momentum = 0.8;
      const Layout layout = random_layout(random);
      DirectRound stage(layout, replicas, diloco_maker(settings));
      start_at_random(stage, random);
      std::vector<double> reference(stage.replica(0).weights.begin(),
                                    stage.replica(0).weights.end());
      std::vector<double> outer(reference.size());
      for (std::int64_t step = 0; step < 5; ++step) {
        std::vector<double> change(reference.size());
        for (std::size_t i = 0; i < replicas; ++i) {
          const auto moved = random_values(layout, random, 0.1);
          for (std::size_t j = 0; j < moved.size(); ++j) {
            stage.replica(i).weights[j] += moved[j];
            change[j] -= static_cast<double>(moved[j]) / static_cast<double>(replicas);
          }
        }
        stage.pass({step_number(step), Hook::update});
        for (std::size_t j = 0; j < change.size(); ++j) {
          outer[j] = 0.8 * outer[j] + change[j];
          reference[j] -= 0.6 * (change[j] + 0.8 * outer[j]);
          ASSERT_NEAR(static_cast<double>(stage.replica(0).weights[j]), reference[j],
                      narrow ? 2e-2 : 1e-5);
        }
        EXPECT_TRUE(same_bits(stage.replica(0).weights, model_of(stage.replica(0))));
      }
    }
  }
}

// Three ways to train apart: the weights of two replicas are 0.1 % and 0.3 % from 1, so both are
// 0.1 % of the mean's norm from their mean.
TEST(TrainingApart, TellsHowFarReplicasWereFromTheirMean) {
  for (const char* name : {"diloco", "streaming_diloco", "noloco"}) {
    SyncSettings settings = usual(name);
    settings.every = settings.fragments = 1;
    settings.late = 0;
    settings.bits = 8;
    const Layout layout({{.name = "a", .shape = {32, 40}}});
    DirectRound stage(layout, 2, diloco_maker(settings));
    for (std::size_t i = 0; i < 2; ++i) {
      std::ranges::fill(stage.replica(i).weights, 1.0F);
      EXPECT_FALSE(stage.replica(i).method->distance()) << name;
    }
    stage.start();
    std::ranges::fill(stage.replica(0).weights, 1.001F);
    std::ranges::fill(stage.replica(1).weights, 1.003F);
    ASSERT_TRUE(stage.pass({step_number(0), Hook::update})) << name;
    for (std::size_t i = 0; i < 2; ++i) {
      ASSERT_TRUE(stage.replica(i).method->distance()) << name;
      EXPECT_NEAR(*stage.replica(i).method->distance(), 0.001, 1e-4) << name;
    }
  }
}

TEST(Diloco, RefusesReplicaWithNonFiniteWeights) {
  SyncSettings settings = usual("diloco");
  settings.every = 1;
  DirectRound stage(Layout({{.name = "a", .shape = {40}}}), 2, diloco_maker(settings));
  stage.start();
  stage.replica(1).weights[3] = std::nanf("");
  ASSERT_TRUE(stage.open({step_number(0), Hook::update}));
  EXPECT_THROW(stage.exchange(), SyncError);
}

TEST(Diloco, RefusesSettingsOutOfRange) {
  SyncSettings settings = usual("diloco");
  settings.every = -1;
  EXPECT_THROW(make_method(settings), SyncError);
  settings.every = 1;
  settings.outer_momentum = 1;
  EXPECT_THROW(make_method(settings), SyncError);
  settings.outer_momentum = 0.9;
  settings.outer_learning_rate = 0;
  EXPECT_THROW(make_method(settings), SyncError);
}

TEST(Diloco, ConvergesToMeanOfTargets) {
  std::mt19937_64 random(2);
  SyncSettings settings = usual("diloco");
  settings.every = 5;
  DirectRound stage(random_layout(random), 4, diloco_maker(settings));
  start_at_random(stage, random);
  Quadratic problem(stage, 7, {});
  for (std::int64_t step = 0; step < 1000; ++step) problem.step(step);
  EXPECT_LT(problem.distance(model_of(stage.replica(0))), 1e-3);
}

}  // namespace
}  // namespace strait::sync
