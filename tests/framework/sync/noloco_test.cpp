#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include "tests/framework/sync/quadratic.h"
#include "tests/framework/sync/random_stage.h"
#include "tests/framework/sync/usual_settings.h"

namespace strait::sync {
namespace {

DirectRound::Maker noloco_maker(const SyncSettings& settings) {
  return [settings] { return make_method(settings); };
}

SyncSettings every_updates(std::int64_t every) {
  SyncSettings settings = usual("noloco");
  settings.every = every;
  settings.seed = 3;
  settings.outer_momentum = 0.5;
  return settings;
}

std::vector<double> mean_of_all(DirectRound& stage, const char* slot) {
  std::vector<double> mean(stage.replica(0).weights.size());
  for (std::size_t i = 0; i < stage.size(); ++i) {
    const auto values = stage.replica(i).slots.values(slot);
    for (std::size_t j = 0; j < mean.size(); ++j) {
      mean[j] += static_cast<double>(values[j]) / static_cast<double>(stage.size());
    }
  }
  return mean;
}

TEST(Noloco, PairsAreMutualAndCoverAllReplicas) {
  const auto method = make_method(every_updates(1));
  const Layout layout({{.name = "a", .shape = {3}}});
  for (std::size_t members = 1; members <= 9; ++members) {
    Membership membership;
    membership.members.resize(members);
    std::map<std::size_t, std::set<std::size_t>> met;
    for (std::int64_t step = 0; step < 300; ++step) {
      std::vector<std::size_t> partners;
      for (membership.mine = 0; membership.mine < members; ++membership.mine) {
        partners.push_back(
            method->plan({step_number(step), Hook::update}, layout, membership)->partner);
      }
      std::size_t alone = 0;
      for (std::size_t i = 0; i < members; ++i) {
        ASSERT_EQ(partners[partners[i]], i);
        met[i].insert(partners[i]);
        if (partners[i] == i) ++alone;
      }
      EXPECT_EQ(alone, members % 2);
    }
    // With an even number every replica has a partner in every round.
    for (const auto& [member, others] : met) {
      EXPECT_EQ(others.size(), members - (members + 1) % 2);
    }
  }
}

// The pull acts between partners only, so the mean of all slow weights follows momentum on the mean
// change, whatever the pairs.
TEST(Noloco, PairsConserveTheMeanOfAll) {
  std::mt19937_64 random(1);
  for (std::size_t replicas = 1; replicas <= 9; ++replicas) {
    SCOPED_TRACE(replicas);
    SyncSettings settings = every_updates(1);
    settings.outer_learning_rate = 0.6;
    const Layout layout = random_layout(random);
    DirectRound stage(layout, replicas, noloco_maker(settings));
    start_at_random(stage, random);
    std::vector<double> slow = mean_of_all(stage, kWeights);
    std::vector<double> delta(slow.size());
    for (std::int64_t step = 0; step < 20; ++step) {
      std::vector<double> change(slow.size());
      for (std::size_t i = 0; i < replicas; ++i) {
        const auto moved = random_values(layout, random, 0.1);
        for (std::size_t j = 0; j < moved.size(); ++j) {
          stage.replica(i).weights[j] += moved[j];
          change[j] += static_cast<double>(moved[j]) / static_cast<double>(replicas);
        }
      }
      ASSERT_TRUE(stage.pass({step_number(step), Hook::update}));
      const std::vector<double> mean = mean_of_all(stage, "reference");
      for (std::size_t j = 0; j < slow.size(); ++j) {
        delta[j] = 0.5 * delta[j] + 0.6 * change[j];
        slow[j] += delta[j];
        ASSERT_NEAR(mean[j], slow[j], 2e-5);
      }
    }
  }
}

TEST(Noloco, ModelReadGetsTheMean) {
  std::mt19937_64 random(2);
  DirectRound stage(random_layout(random), 5, noloco_maker(every_updates(3)));
  start_at_random(stage, random);
  Quadratic problem(stage, 7, {});
  for (std::int64_t step = 0; step < 12; ++step) problem.step(step);
  EXPECT_FALSE(same_bits(stage.replica(0).weights, stage.replica(1).weights));
  problem.look(12);
  const std::vector<double> mean = mean_of_all(stage, "reference");
  for (std::size_t i = 0; i < stage.size(); ++i) {
    const std::vector<float> model = model_of(stage.replica(i));
    EXPECT_TRUE(same_bits(model, model_of(stage.replica(0))));
    for (std::size_t j = 0; j < mean.size(); ++j) {
      ASSERT_NEAR(static_cast<double>(model[j]), mean[j], 1e-6 + 1e-6 * std::abs(mean[j]));
    }
  }
}

TEST(Noloco, ConvergesToMeanOfTargetsAndReplicasStayClose) {
  std::mt19937_64 random(3);
  for (const std::size_t replicas : {2, 3, 4, 8}) {
    SCOPED_TRACE(replicas);
    DirectRound stage(random_layout(random), replicas, noloco_maker(every_updates(5)));
    start_at_random(stage, random);
    Quadratic problem(stage, 7, {.apart = 0.3, .learning_rate = 0.05F});
    for (std::int64_t step = 0; step < 2000; ++step) problem.step(step);
    problem.look(2000);
    EXPECT_LT(problem.distance(model_of(stage.replica(0))), 0.02);
    for (std::size_t i = 0; i < replicas; ++i) {
      const auto slow = stage.replica(i).slots.values("reference");
      EXPECT_LT(problem.distance({slow.begin(), slow.end()}), 0.35);
    }
  }
}

}  // namespace
}  // namespace strait::sync
