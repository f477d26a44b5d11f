#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <mutex>

#include "tests/stages/stage_threads.h"

namespace strait::stages {
namespace {

using testing::ElementsAre;

// The checkpoints of two stages whose forwards of these steps (from 0 on) are not finite. Each is
// saved by both.
std::multiset<std::int64_t> saved_with_skips(const std::set<std::int64_t>& skipped,
                                             int stop_at = 0) {
  RunSettings settings;
  settings.stop_at = stop_at;
  settings.blocks = {{0, 1}, {2, 3}};
  settings.steps = 12;
  settings.checkpoint_every = 4;
  float was = 0;  // of stage 1, until it is put back
  const auto spoil = [&was, skipped](bool back) {
    return [&was, skipped, back](Stage& stage, std::size_t process, const Phase& phase,
                                 const schedules::Action& action) {
      const bool here = process == 1 && phase.training && skipped.contains(number(phase.step));
      if (!here || action.work != schedules::Work::forward) return;
      const at::NoGradGuard no_grad;
      const at::Tensor value = stage.optimizer().slots().front().master.view({-1})[0];
      if (!back) was = value.item<float>();
      value.fill_(back ? was : std::numeric_limits<float>::quiet_NaN());
    };
  };
  settings.before = spoil(false);
  settings.after = spoil(true);
  std::mutex mutex;
  std::multiset<std::int64_t> saved;
  settings.at_checkpoint = [&](Stage&, std::size_t, store::Step step) {
    const std::lock_guard lock(mutex);
    saved.insert(number(step));
  };
  const RunResult result = run_stages(settings);
  EXPECT_THAT(result.errors, testing::IsEmpty());
  for (std::size_t step = 0; step < result.skips.size(); ++step) {
    EXPECT_EQ(result.skips[step], skipped.contains(static_cast<std::int64_t>(step))) << step;
  }
  return saved;
}

// Step 3 is the fourth, after which a checkpoint is due.
TEST(SkippedStep, SavesNothingAndTheNextUpdateDoes) {
  EXPECT_THAT(saved_with_skips({3}), ElementsAre(5, 5, 8, 8, 12, 12));
  EXPECT_THAT(saved_with_skips({3, 4}), ElementsAre(6, 6, 8, 8, 12, 12));
  EXPECT_THAT(saved_with_skips({4, 5}), ElementsAre(4, 4, 8, 8, 12, 12));
}

// What was trained until then is in no checkpoint yet.
TEST(SkippedStep, AtTheEndOrAStopIsSavedAllTheSame) {
  EXPECT_THAT(saved_with_skips({10, 11}), ElementsAre(4, 4, 8, 8, 12, 12));
  EXPECT_THAT(saved_with_skips({5}, 6), ElementsAre(4, 4, 6, 6));
}

}  // namespace
}  // namespace strait::stages
