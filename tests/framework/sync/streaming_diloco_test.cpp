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

DirectRound::Maker streaming_maker(const SyncSettings& settings) {
  return [settings] { return make_method(settings); };
}

SyncSettings turns(std::int64_t every, std::int64_t fragments, std::int64_t late) {
  SyncSettings settings = usual("streaming_diloco");
  settings.every = every;
  settings.fragments = fragments;
  settings.late = late;
  return settings;
}

TEST(StreamingDiloco, SyncsEveryCoordinateOncePerSpan) {
  std::mt19937_64 random(1);
  for (int run = 0; run < 50; ++run) {
    const auto fragments = static_cast<std::int64_t>(1 + random() % 5);
    const auto every = fragments + static_cast<std::int64_t>(random() % 9);
    const auto method = make_method(turns(every, fragments, 0));
    const Layout layout = random_layout(random, {{.name = "tied", .shape = {9, 50}, .tied = true}});
    std::vector<int> turns_of(static_cast<std::size_t>(layout.size()));
    std::int64_t rounds = 0;
    for (std::int64_t step = 1000; step < 1000 + every; ++step) {
      const auto plan = method->plan({step_number(step), Hook::update}, layout, {});
      if (!plan) continue;
      ++rounds;
      for (const Range& range : plan->ranges) {
        for (auto i = range.first; i < range.last; ++i) ++turns_of[static_cast<std::size_t>(i)];
      }
    }
    EXPECT_EQ(rounds, fragments);
    EXPECT_EQ(std::ranges::count(turns_of, 1), layout.size());
  }
}

TEST(StreamingDiloco, HasOneRoundInProgressAndNoneAtTheLastUpdate) {
  for (const std::int64_t steps : {1, 7, 24, 25, 26}) {
    SyncSettings settings = turns(8, 4, 2);
    settings.steps = steps;
    DirectRound stage(Layout({{.name = "a", .shape = {30, 20}}}), 2, streaming_maker(settings));
    stage.start();
    for (std::int64_t step = 0; step < steps; ++step) {
      // Throws if a round opened while another is in progress.
      stage.before_update(step_number(step));
      const bool opened = stage.open({step_number(step), Hook::update});
      EXPECT_TRUE(opened || step + 1 < steps);
      if (!opened) continue;
      stage.exchange();
      if (stage.rounds()[0].plan.late == 0) stage.apply();
    }
    EXPECT_FALSE(stage.in_progress()) << steps;
  }
}

TEST(StreamingDiloco, BlendsResultIntoChangedWeights) {
  SyncSettings settings = turns(2, 1, 1);
  settings.outer_learning_rate = 1;
  settings.outer_momentum = 0;
  settings.bits = 8;
  DirectRound stage(Layout({{.name = "a", .shape = {1}}}), 2, streaming_maker(settings));
  stage.start();
  stage.replica(0).weights[0] = 2;
  stage.replica(1).weights[0] = 4;
  ASSERT_TRUE(stage.pass({step_number(1), Hook::update}));
  stage.replica(0).weights[0] = 10;
  EXPECT_EQ(model_of(stage.replica(0))[0], 0);
  stage.before_update(step_number(2));
  EXPECT_NEAR(model_of(stage.replica(0))[0], 3, 0.03);
  EXPECT_NEAR(stage.replica(0).weights[0], 0.5 * 10 + 0.5 * 3, 0.03);
}

TEST(StreamingDiloco, RefusesSettingsOutOfRange) {
  EXPECT_THROW(make_method(turns(3, 4, 0)), SyncError);
  EXPECT_THROW(make_method(turns(8, 4, 3)), SyncError);
  EXPECT_THROW(make_method(turns(8, 0, 0)), SyncError);
  EXPECT_THROW(make_method(turns(8, 4, -1)), SyncError);
  SyncSettings settings = usual("streaming_diloco");
  settings.bits = 1;
  EXPECT_THROW(make_method(settings), SyncError);
}

TEST(StreamingDiloco, ConvergesToMeanOfTargets) {
  std::mt19937_64 random(2);
  for (const int bits : {4, 8}) {
    SyncSettings settings = turns(8, 4, 2);
    settings.bits = bits;
    DirectRound stage(random_layout(random), 4, streaming_maker(settings));
    start_at_random(stage, random);
    Quadratic problem(stage, 7, {});
    for (std::int64_t step = 0; step < 2000; ++step) problem.step(step);
    EXPECT_LT(problem.distance(model_of(stage.replica(0))), bits == 4 ? 0.05 : 0.005);
  }
}

}  // namespace
}  // namespace strait::sync
