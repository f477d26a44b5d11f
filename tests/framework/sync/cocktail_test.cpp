// The laws of the method, on random tensors, members and settings. Local training is a random walk
// of each replica: nothing here is smooth, so nothing is hidden.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include "framework/sync/sync_error.h"
#include "tests/framework/sync/direct_round.h"
#include "tests/framework/sync/random_stage.h"
#include "tests/framework/sync/usual_settings.h"

namespace strait::sync {
namespace {

using testing::HasSubstr;

DirectRound::Maker cocktail(const SyncSettings& settings) {
  return [settings] { return make_method(settings); };
}

// An outer step that applies results unchanged: the plain mean, late and in pieces.
SyncSettings averaging() {
  SyncSettings settings = usual("cocktail");
  settings.outer_learning_rate = 1;
  settings.outer_momentum = 0;
  return settings;
}

SyncSettings random_settings(std::mt19937_64& random) {
  SyncSettings settings = averaging();
  settings.seed = random();
  settings.random = std::array{0.05, 0.1, 0.37, 0.5, 1.0}[random() % 5];
  settings.top = std::array{0.01, 0.2, 0.6, 1.0}[random() % 4];
  settings.bits = 1 + static_cast<int>(random() % 8);
  return settings;
}

// Replicas that walk at random and what an uncompressed mean of them would have become.
class Walk {
 public:
  Walk(DirectRound& stage, std::uint64_t seed, double stride)
      : stage_(stage), random_(seed), stride_(stride) {
    for (const float weight : stage.replica(0).weights) mean_.push_back(weight);
  }

  void step() {
    for (std::size_t number = 0; number < stage_.size(); ++number) {
      std::vector<float>& weights = stage_.replica(number).weights;
      const std::vector<float> strides = random_values(stage_.layout(), random_, stride_);
      for (std::size_t i = 0; i < weights.size(); ++i) {
        const float before = weights[i];
        weights[i] += strides[i];
        mean_[i] += (static_cast<double>(weights[i]) - static_cast<double>(before)) /
                    static_cast<double>(stage_.size());
      }
    }
  }
  // Applies a round that is due. With momentum, what the outer step adds to the result moves the
  // sum.
  void before_update(store::Step step, double momentum) {
    const auto model = model_of(stage_.replica(0));
    const auto outer = outer_of(stage_.replica(0));
    stage_.before_update(step);
    const auto new_model = model_of(stage_.replica(0));
    const auto new_outer = outer_of(stage_.replica(0));
    for (std::size_t i = 0; i < mean_.size(); ++i) {
      const bool passed_over = model[i] == new_model[i] && outer[i] == new_outer[i];
      if (passed_over) continue;
      const double gradient =
          static_cast<double>(new_outer[i]) - momentum * static_cast<double>(outer[i]);
      mean_[i] += static_cast<double>(new_model[i]) - static_cast<double>(model[i]) + gradient;
    }
  }
  // The furthest that mean(weights) + residual is from it.
  double lost() const {
    std::vector<double> kept(mean_.size());
    for (std::size_t number = 0; number < stage_.size(); ++number) {
      DirectReplica& replica = stage_.replica(number);
      std::vector<float> residual(mean_.size());
      replica.slots.load("residual", {0, stage_.layout().size()}, residual);
      for (std::size_t i = 0; i < kept.size(); ++i) {
        kept[i] += static_cast<double>(residual[i]) +
                   static_cast<double>(replica.weights[i]) / static_cast<double>(stage_.size());
      }
    }
    double most = 0;
    for (std::size_t i = 0; i < kept.size(); ++i) {
      most = std::max(most, std::abs(kept[i] - mean_[i]));
    }
    return most;
  }
  const std::vector<double>& mean() const { return mean_; }

 private:
  std::vector<float> outer_of(DirectReplica& replica) const {
    std::vector<float> outer(mean_.size());
    replica.slots.load("outer", {0, stage_.layout().size()}, outer);
    return outer;
  }

  DirectRound& stage_;
  std::mt19937_64 random_;
  double stride_;
  std::vector<double> mean_;
};

void expect_agreement(DirectRound& stage) {
  const auto reference = model_of(stage.replica(0));
  for (std::size_t number = 1; number < stage.size(); ++number) {
    ASSERT_TRUE(same_bits(reference, model_of(stage.replica(number)))) << "replica " << number;
  }
}

TEST(Cocktail, ConservesChangesOverAThousandRounds) {
  for (std::uint64_t seed = 0; seed < 8; ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937_64 random(seed);
    const std::size_t replicas = 2 + seed;
    DirectRound stage(random_layout(random), replicas, cocktail(random_settings(random)));
    start_at_random(stage, random);
    Walk walk(stage, random(), 1e-3);
    for (std::int64_t step = 0; step < 1000; ++step) {
      stage.before_update(step_number(step));
      walk.step();
      stage.pass({step_number(step), Hook::update});
      expect_agreement(stage);
    }
    stage.apply();
    // Weights of about one: a thousand roundings of 2^-24, few of them one way.
    EXPECT_LT(walk.lost(), 1e-5);
  }
}

// With momentum the sum moves by what outer steps add to the results, which all replicas can
// compute.
TEST(Cocktail, ConservesChangesWithAnOuterStep) {
  for (std::uint64_t seed = 0; seed < 8; ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937_64 random(seed);
    SyncSettings settings = random_settings(random);
    settings.outer_learning_rate = std::array{0.3, 0.7, 1.0}[random() % 3];
    settings.outer_momentum = std::array{0.5, 0.9}[random() % 2];
    DirectRound stage(random_layout(random), 2 + seed % 4, cocktail(settings));
    start_at_random(stage, random);
    Walk walk(stage, random(), 1e-3);
    for (std::int64_t step = 0; step < 300; ++step) {
      walk.before_update(step_number(step), *settings.outer_momentum);
      walk.step();
      stage.pass({step_number(step), Hook::update});
      expect_agreement(stage);
    }
    walk.before_update(step_number(300), *settings.outer_momentum);
    EXPECT_LT(walk.lost(), 1e-4);
  }
}

// One change that is sent whole: each later round adds what is left of the momentum.
TEST(Cocktail, MomentumContinuesAChange) {
  std::mt19937_64 random(2);
  SyncSettings settings = usual("cocktail");
  settings.random = 1;
  settings.top = 1;
  settings.bits = 8;
  settings.outer_learning_rate = 0.5;
  settings.outer_momentum = 0.75;
  DirectRound stage(random_layout(random), 3, cocktail(settings));
  start_at_random(stage, random);
  const std::vector<float> before = model_of(stage.replica(0));
  Walk walk(stage, random(), 0.1);
  walk.step();
  for (std::int64_t step = 0; step < 100; ++step) {
    stage.before_update(step_number(step));
    stage.pass({step_number(step), Hook::update});
  }
  stage.apply();
  const auto after = model_of(stage.replica(0));
  for (std::size_t i = 0; i < after.size(); ++i) {
    const double moved = walk.mean()[i] - static_cast<double>(before[i]);
    ASSERT_NEAR(after[i], static_cast<double>(before[i]) + 0.5 / (1 - 0.75) * moved, 1e-5);
  }
}

TEST(Cocktail, HasMomentumByDefaultWhereResultsAreStale) {
  const auto slots = [](double share, std::optional<double> momentum, std::int64_t steps = 0) {
    SyncSettings settings = usual("cocktail");
    settings.steps = steps;
    settings.random = share;
    settings.outer_momentum = momentum;
    return make_method(settings)->traits.slots.size();
  };
  EXPECT_EQ(slots(0.1, std::nullopt), 3U);
  EXPECT_EQ(slots(0.1, 0.0), 2U);
  EXPECT_EQ(slots(1, std::nullopt), 2U);
  EXPECT_EQ(slots(1, 0.5), 3U);
  // In a run that covers each coordinate ten times, momentum comes too late.
  EXPECT_EQ(slots(0.1, std::nullopt, 100), 2U);
  EXPECT_EQ(slots(0.1, std::nullopt, 1000), 3U);
  EXPECT_EQ(slots(0.1, 0.5, 100), 3U);
}

TEST(Cocktail, StepsByOwnGradientRuleWhereResultsAreFresh) {
  const auto rule = [](double share) {
    SyncSettings settings = usual("cocktail");
    settings.random = share;
    return make_method(settings)->update_rule(step_number(0));
  };
  EXPECT_EQ(rule(0.5), UpdateRule::own_gradient);
  EXPECT_EQ(rule(0.25), UpdateRule::adamw);
}

TEST(Cocktail, AveragesExactlyWhenItSendsEverything) {
  std::mt19937_64 random(1);
  SyncSettings settings = averaging();
  settings.random = 1;
  settings.top = 1;
  settings.bits = 8;
  DirectRound stage(random_layout(random), 4, cocktail(settings));
  start_at_random(stage, random);
  Walk walk(stage, random(), 0.1);
  walk.step();
  for (std::int64_t step = 0; step < 30; ++step) {
    stage.before_update(step_number(step));
    stage.pass({step_number(step), Hook::update});
  }
  stage.apply();
  const auto reference = model_of(stage.replica(0));
  for (std::size_t i = 0; i < reference.size(); ++i) {
    ASSERT_NEAR(reference[i], walk.mean()[i], 1e-6);
    ASSERT_NEAR(stage.replica(2).weights[i], walk.mean()[i], 1e-6);
  }
}

// A walk in one direction, at the learning rates of fine-tuning and far below.
TEST(Cocktail, IsIndependentOfTheScaleOfSteps) {
  double behind_first = 0;
  for (const double stride : {1e-4, 1e-6, 1e-7, 1e-9}) {
    std::mt19937_64 random(3);
    SyncSettings settings = averaging();
    settings.seed = 5;
    DirectRound stage(Layout({{"w", {64, 64}, false}, {"norm", {64}, false}}), 4,
                      cocktail(settings));
    // At zero, where a float holds any step.
    stage.start();
    const std::vector<float> drift = random_values(stage.layout(), random, stride);
    for (std::int64_t step = 0; step < 400; ++step) {
      stage.before_update(step_number(step));
      for (std::size_t number = 0; number < 4; ++number) {
        auto& weights = stage.replica(number).weights;
        for (std::size_t i = 0; i < weights.size(); ++i) weights[i] += drift[i];
      }
      stage.pass({step_number(step), Hook::update});
    }
    const auto reference = model_of(stage.replica(0));
    double behind = 0;
    double all = 0;
    for (std::size_t i = 0; i < reference.size(); ++i) {
      behind +=
          std::pow(400 * static_cast<double>(drift[i]) - static_cast<double>(reference[i]), 2);
      all += std::pow(400 * static_cast<double>(drift[i]), 2);
    }
    behind = std::sqrt(behind / all);
    EXPECT_LT(behind, 0.2);
    if (behind_first == 0) behind_first = behind;
    EXPECT_NEAR(behind / behind_first, 1, 0.1) << stride;
  }
}

TEST(Cocktail, DroppedRoundLeavesNoTrace) {
  std::mt19937_64 random(4);
  for (int round = 0; round < 20; ++round) {
    const SyncSettings settings = random_settings(random);
    const std::size_t replicas = 1 + random() % 9;
    const std::uint64_t seed = random();
    const auto run = [&](bool with_drops) {
      std::mt19937_64 same(seed);
      DirectRound stage(random_layout(same), replicas, cocktail(settings));
      start_at_random(stage, same);
      Walk walk(stage, same(), 1e-3);
      for (std::int64_t step = 0; step < 12; ++step) {
        stage.before_update(step_number(step));
        walk.step();
        if (step % 3 == 2 && with_drops) {
          stage.open({step_number(step), Hook::update});
          if (step % 2 == 0) stage.exchange();
          stage.drop();
        } else if (step % 3 != 2) {
          stage.pass({step_number(step), Hook::update});
        }
      }
      std::vector<std::vector<std::vector<float>>> slots;
      for (std::size_t number = 0; number < replicas; ++number) {
        slots.push_back(slots_of(stage.replica(number)));
      }
      return slots;
    };
    const auto with = run(true);
    const auto without = run(false);
    for (std::size_t number = 0; number < replicas; ++number) {
      ASSERT_TRUE(same_bits(with[number], without[number])) << "round " << round;
    }
  }
}

// The same weight on two stages, changed alike, between different tensors.
TEST(Cocktail, TiedTensorsStayEqual) {
  const PieceSpec tied{"embedding", {100, 24}, true};
  std::mt19937_64 random(6);
  for (std::size_t replicas = 2; replicas < 6; ++replicas) {
    const SyncSettings settings = random_settings(random);
    DirectRound first(Layout({tied, {"a", {64, 64}, false}}), replicas, cocktail(settings));
    DirectRound last(Layout({{"b", {33, 5}, false}, {"norm", {17}, false}, tied}), replicas,
                     cocktail(settings));
    const Range here = first.layout().piece("embedding").range;
    const Range there = last.layout().piece("embedding").range;
    first.start();
    last.start();
    for (std::int64_t step = 0; step < 60; ++step) {
      first.before_update(step_number(step));
      last.before_update(step_number(step));
      for (std::size_t number = 0; number < replicas; ++number) {
        auto one = random_values(first.layout(), random, 1e-3);
        auto other = random_values(last.layout(), random, 1e-3);
        std::copy(one.begin() + here.first, one.begin() + here.last, other.begin() + there.first);
        auto& a = first.replica(number).weights;
        auto& b = last.replica(number).weights;
        std::transform(a.begin(), a.end(), one.begin(), a.begin(), std::plus<>());
        std::transform(b.begin(), b.end(), other.begin(), b.begin(), std::plus<>());
      }
      first.pass({step_number(step), Hook::update});
      last.pass({step_number(step), Hook::update});
      for (std::size_t number = 0; number < replicas; ++number) {
        const auto one = slots_of(first.replica(number));
        const auto other = slots_of(last.replica(number));
        for (std::size_t slot = 0; slot < one.size(); ++slot) {
          ASSERT_TRUE(std::equal(one[slot].begin() + here.first, one[slot].begin() + here.last,
                                 other[slot].begin() + there.first))
              << "slot " << slot << " step " << step;
        }
      }
    }
  }
}

TEST(Cocktail, RefusesNonFiniteWeightsByNameWithoutAnyChange) {
  DirectRound stage(Layout({{"norm", {20}, false}, {"layers.3.w", {30, 30}, false}}), 3,
                    cocktail([] {
                      SyncSettings settings = usual("cocktail");
                      settings.random = 1;
                      return settings;
                    }()));
  stage.start();
  for (const float bad : {NAN, INFINITY, -INFINITY, 2e30F}) {
    stage.replica(1).weights[32 + 7] = bad;
    const auto before = slots_of(stage.replica(1));
    stage.open({step_number(0), Hook::update});
    try {
      stage.exchange();
      FAIL() << "took " << bad;
    } catch (const SyncError& error) {
      EXPECT_THAT(error.what(), HasSubstr("layers.3.w"));
      EXPECT_THAT(error.what(), HasSubstr("at index 7"));
    }
    stage.drop();
    EXPECT_TRUE(same_bits(slots_of(stage.replica(1)), before));
  }
}

TEST(Cocktail, RefusesDamagedResultsWithoutAnyChange) {
  std::size_t refused = 0;
  for (std::uint64_t seed = 0; seed < 200; ++seed) {
    std::mt19937_64 random(seed);
    DirectRound stage(random_layout(random), 2, cocktail(random_settings(random)));
    start_at_random(stage, random);
    Walk walk(stage, random(), 1e-3);
    walk.step();
    stage.open({step_number(0), Hook::update});
    const auto before = slots_of(stage.replica(0));
    const auto damage = [&] {
      Round& round = stage.rounds()[0];
      std::vector<std::uint32_t> others;
      for (const Part& part : round.parts) {
        if (part.owner != 0) others.push_back(part.index);
      }
      net::Frame& frame = round.exchanges[0].results[others[random() % others.size()]];
      if (frame.empty()) return;
      frame[random() % frame.size()] ^= std::byte(1 + random() % 255);
      if (random() % 2 == 0) frame.resize(random() % frame.size());
    };
    try {
      stage.exchange(damage);
      stage.apply();
    } catch (const SyncError& error) {
      EXPECT_EQ(error.kind(), SyncError::Kind::corrupt);
      ASSERT_TRUE(same_bits(slots_of(stage.replica(0)), before)) << "seed " << seed;
      ++refused;
    }
  }
  EXPECT_GT(refused, 50U);
}

TEST(Cocktail, RefusesSettingsOutOfRange) {
  const auto refusal = [](auto change) -> std::string {
    SyncSettings settings = usual("cocktail");
    change(settings);
    try {
      make_method(settings);
    } catch (const SyncError& error) {
      EXPECT_EQ(error.kind(), SyncError::Kind::setting);
      return error.what();
    }
    return "";
  };
  EXPECT_EQ(refusal([](SyncSettings&) {}), "");
  EXPECT_THAT(refusal([](SyncSettings& s) { s.random = 0; }), HasSubstr("random is 0"));
  EXPECT_THAT(refusal([](SyncSettings& s) { s.random = NAN; }), HasSubstr("random"));
  EXPECT_THAT(refusal([](SyncSettings& s) { s.top = 1.5; }), HasSubstr("top is 1.5"));
  EXPECT_THAT(refusal([](SyncSettings& s) { s.bits = 9; }), HasSubstr("bits is 9"));
  EXPECT_THAT(refusal([](SyncSettings& s) { s.bits = 0; }), HasSubstr("bits is 0"));
}

// Sent by each replica, both phases, against what it sends of 16-bit values in an all-reduce.
TEST(Cocktail, SendsAHundredAndThirtiethOfSixteenBits) {
  constexpr std::size_t kReplicas = 4;
  SyncSettings settings = usual("cocktail");
  DirectRound stage(Layout({{"w", {1024, 512}, false}}), kReplicas, cocktail(settings));
  stage.start();
  Walk walk(stage, 1, 1e-4);
  double bytes = 0;
  for (std::int64_t step = 0; step < 20; ++step) {
    stage.before_update(step_number(step));
    walk.step();
    stage.pass({step_number(step), Hook::update});
    for (const std::uint64_t sent : stage.sent()) bytes += static_cast<double>(sent);
  }
  const double whole = 20 * 2.0 * (kReplicas - 1) * 2 * 1024 * 512;
  EXPECT_GT(whole / bytes, 125);
}

}  // namespace
}  // namespace strait::sync
