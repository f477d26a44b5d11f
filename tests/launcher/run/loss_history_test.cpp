#include "launcher/run/loss_history.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>

#include "framework/store/checkpoint.h"
#include "launcher/base/run_file_names.h"
#include "tests/scratch_directory.h"

namespace strait::run {
namespace {

using store::Step;
using testing::AllOf;
using testing::HasSubstr;

constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();
constexpr std::int64_t kTokens = 900;  // so that 0.1 nats are no noise
const double kGuess = std::log(257);   // 5.549

LossHistory::Loss loss(std::int64_t step, double value) { return {Step{step}, value, kTokens}; }

// Steps from 1 on; NaN: skipped.
LossHistory after(const std::vector<double>& losses) {
  LossHistory history(kGuess);
  std::int64_t step = 0;
  for (const double one : losses) history.trained(loss(++step, one), std::isnan(one));
  return history;
}

TEST(LossHistory, LossOfAStepProvesWeightsBeforeIt) {
  EXPECT_EQ(after({}).good(), std::nullopt);
  EXPECT_EQ(after({5.6}).good(), Step{0});
  EXPECT_EQ(after({5.6, 5.5, 5.4}).good(), Step{2});
  LossHistory evaluated = after({5.6, 5.5, 5.4});
  evaluated.evaluated(loss(3, 5.3));
  EXPECT_EQ(evaluated.good(), Step{3});
  EXPECT_TRUE(evaluated.is_good(Step{3}));
  EXPECT_FALSE(evaluated.is_good(Step{4}));
}

// As in a run that goes on with a learning rate of 10: step 4 still has good weights, and ruins
// them.
TEST(LossHistory, StepsThatAreNotFiniteProveNothing) {
  LossHistory history = after({3.3, 3.2, 3.1, 3.0, kNaN, kNaN});
  EXPECT_EQ(history.good(), Step{3});
  EXPECT_EQ(history.skipped_in_a_row(), 2);
  for (const std::int64_t step : {1, 2, 3}) EXPECT_FALSE(history.is_bad(Step{step}));
  for (const std::int64_t step : {4, 5, 6}) EXPECT_TRUE(history.is_bad(Step{step}));
  EXPECT_TRUE(history.is_seen(Step{5}));
  // A skipped step changes no weight: step 7 has those of checkpoint 4.
  history.trained(loss(7, 3.1), false);
  EXPECT_EQ(history.good(), Step{6});
  EXPECT_EQ(history.skipped_in_a_row(), 0);
  EXPECT_FALSE(history.is_bad(Step{7}));
  EXPECT_FALSE(history.is_seen(Step{7}));
}

// Finite losses may precede those that are not: the weights are ruined all the same.
TEST(LossHistory, DivergedLossesProveNothing) {
  const LossHistory history = after({3.3, 3.2, 1126, 390, 2151});
  EXPECT_EQ(history.good(), Step{1});
  EXPECT_FALSE(history.is_bad(Step{4})) << "they are finite";
  EXPECT_THAT(history.divergence(), AllOf(HasSubstr("it is 2151 at step 5"), HasSubstr("5.549"),
                                          HasSubstr("it was 3.2 at step 2")));
  // A model that has never been better than a guess has not diverged.
  EXPECT_EQ(after({12, 11, 11.5}).good(), Step{2});
  EXPECT_EQ(after({12, 11, 11.5}).divergence(), "");
  // Nor is noise about that of a guess a divergence.
  EXPECT_EQ(after({5.6, 5.5, 5.6}).divergence(), "");
  EXPECT_NE(after({5.6, 5.5, 5.7}).divergence(), "");
  EXPECT_EQ(after({3.3, 3.2, 1126, 3.3}).divergence(), "");
  EXPECT_EQ(after({3.3, 3.2, 1126, 3.3}).good(), Step{3});
  LossHistory unknown;
  for (const std::int64_t step : {1, 2}) {
    unknown.trained(loss(step, step == 1 ? 1 : 1e9), false);
    EXPECT_EQ(unknown.divergence(), "");
  }
}

TEST(LossHistory, LatestLossSaysWhetherItHasDiverged) {
  EXPECT_EQ(LossHistory(kGuess).divergence(), "");
  EXPECT_THAT(after({kNaN, kNaN}).divergence(), HasSubstr("no step was finite"));
  EXPECT_THAT(after({3.0, kNaN}).divergence(), HasSubstr("not finite at step 2"));
  LossHistory history = after({3.0, 3.0});
  history.evaluated(loss(2, kNaN));
  EXPECT_THAT(history.divergence(), HasSubstr("not finite at step 2"));
  EXPECT_TRUE(history.is_bad(Step{2}));
  EXPECT_FALSE(history.is_bad(Step{1}));
  // The evaluation is of later weights than its step, whichever is reported first.
  LossHistory early = after({3.0});
  early.evaluated(loss(2, 7));
  early.trained(loss(2, 3.0), false);
  EXPECT_THAT(early.divergence(), HasSubstr("it is 7 at step 2"));
  EXPECT_EQ(early.good(), Step{0});
}

TEST(LossHistory, GoingBackForgetsLaterLosses) {
  LossHistory history = after({3.3, 3.2, 3.1, 3.0, kNaN, kNaN});
  history.go_back(Step{2});
  EXPECT_EQ(history.good(), Step{2});
  EXPECT_FALSE(history.is_bad(Step{2}));
  EXPECT_FALSE(history.is_seen(Step{2}));
  EXPECT_EQ(history.divergence(), "");
  EXPECT_EQ(history.skipped_in_a_row(), 0);
  LossHistory to_ruined = after({3.3, 3.2, kNaN});
  to_ruined.go_back(Step{2});
  EXPECT_TRUE(to_ruined.is_bad(Step{2}));
  LossHistory best = after({6, 6, 3, 6});
  EXPECT_NE(best.divergence(), "");
  best.go_back(Step{2});
  best.trained(loss(3, 6), false);
  EXPECT_EQ(best.divergence(), "") << "only what it has gone back from was better than a guess";
}

TEST(LossHistory, IsReadFromTheFilesOfARun) {
  const ScratchDirectory run;
  EXPECT_EQ(read_losses(run.path(), kGuess).good(), std::nullopt);
  ScratchDirectory::write(run / base::kMetricsFile,
                          R"({"step":1,"loss":3.3,"targets":900,"skipped":false}
{"step":2,"loss":3.2,"targets":900,"skipped":false}
{"step":3,"loss":3.1,"targets":900,"skipped":false}
{"step":4,"loss":1170,"grad_norm":null,"targets":900,"skipped":true}
{"step":5,"loss":null,"targets":900,"skipped":true}
{"step":6,"loss":2)");
  const LossHistory history = read_losses(run.path(), kGuess);
  EXPECT_EQ(history.good(), Step{2});
  EXPECT_TRUE(history.is_bad(Step{3}));
  EXPECT_EQ(history.skipped_in_a_row(), 2);
  // Of evaluations only those count that the run has not gone back before.
  ScratchDirectory::write(run / base::kEventsFile,
                          R"({"event":"training","from":0,"to":9}
{"event":"evaluated","step":3,"loss":3.0,"tokens":900}
{"event":"evaluated","step":5,"loss":3.0,"tokens":900}
{"event":"evaluated","step":7,"loss":3.0,"tokens":900}
{"event":"training","from":4,"to":9}
{"event":7}
)");
  EXPECT_EQ(read_losses(run.path(), kGuess).good(), Step{3});
}

// A full disk takes lines of metrics.jsonl: the rule for an early end counts the evaluations.
TEST(LossHistory, CountsEvaluationsOfStepsWhoseLinesAreLost) {
  const ScratchDirectory run;
  ScratchDirectory::write(run / base::kEventsFile,
                          R"({"event":"training","from":0,"to":99}
{"event":"evaluated","step":2,"loss":3.0,"tokens":900}
{"event":"evaluated","step":4,"loss":3.1,"tokens":900}
{"event":"evaluated","step":6,"loss":3.2,"tokens":900}
{"event":"evaluated","step":8,"loss":3.3,"tokens":900}
)");
  ScratchDirectory::write(run / base::kMetricsFile,
                          R"({"step":1,"loss":3.3,"targets":900,"skipped":false}
{"step":2,"loss":3.2,"targets":900,"skipped":false}
{"step":7,"loss":3.1,"targets":900,"skipped":false}
)");
  const LossHistory history = read_losses(run.path(), kGuess);
  for (const std::int64_t step : {2, 4, 6, 8}) EXPECT_TRUE(history.evaluation(Step{step})) << step;
  EXPECT_EQ(history.good(), Step{8});
  EXPECT_EQ(history.end_reason({3, 0}),
            "the evaluation loss was not better than the 3 of step 2 for 3 evaluations");
  EXPECT_EQ(history.skipped_in_a_row(), 0);
}

// A run at random: finite steps, diverged ones and such that are not finite, saves also after these
// (a stop), evaluations, prunings, and resumes from any checkpoint. Held against what the losses of
// its history say of each checkpoint.
class RandomRun {
 public:
  explicit RandomRun(std::uint64_t seed) : random_(seed) {}

  void act() {
    switch (draw(8)) {
      case 0:
        return evaluate();
      case 1:
      case 2:
        if (step_ > 0 && (saved_.empty() || saved_.front() < Step{step_}))
          saved_.insert(saved_.begin(), Step{step_});
        return prune();
      case 3:
        if (!saved_.empty() && draw(4) == 0) go_back(saved_[draw(saved_.size())]);
        return;
      default:
        return train();
    }
  }

 private:
  struct Seen {
    std::int64_t step = 0;
    bool evaluation = false;
    double value = 0;
  };

  std::uint64_t draw(std::uint64_t most) { return random_() % most; }
  double any_loss() { return std::array{2.0, 3.0, 4.0, 50.0, kNaN, kNaN}[draw(6)]; }

  void train() {
    const double value = any_loss();
    seen_.push_back({++step_, false, value});
    history_.trained(loss(step_, value), std::isnan(value));
  }
  void evaluate() {
    if (step_ == 0 || (!seen_.empty() && seen_.back().evaluation)) return;
    const double value = any_loss();
    seen_.push_back({step_, true, value});
    history_.evaluated(loss(step_, value));
  }
  void go_back(Step step) {
    std::erase_if(saved_, [step](Step one) { return one > step; });
    // The loss of the weights of `step` is that of the next one, which this launch takes again.
    const bool good = is_good(step);
    std::erase_if(seen_, [step](const Seen& one) { return one.step > number(step); });
    if (good) seen_.push_back({number(step), true, kGuess});
    history_.go_back(step);
    step_ = number(step);
  }
  void prune() {
    const auto newest = std::ranges::find_if(saved_, [this](Step one) { return is_good(one); });
    const std::optional<Step> good = newest == saved_.end() ? std::nullopt : std::optional(*newest);
    saved_ = store::steps_to_keep(saved_, static_cast<std::int64_t>(2 + draw(2)), history_.good());
    EXPECT_LE(saved_.size(), 4U);
    if (good) {
      EXPECT_THAT(saved_, testing::Contains(*good));
    }
  }
  // By the definition: a finite loss that has not diverged was seen after these weights.
  bool is_good(Step checkpoint) const {
    bool better = false;
    bool good = false;
    for (const Seen& one : seen_) {
      const bool sound = std::isfinite(one.value) && !(better && one.value > kGuess);
      better = better || one.value < kGuess;
      const std::int64_t weights = one.evaluation ? one.step : one.step - 1;
      good = good || (sound && weights >= number(checkpoint));
    }
    return good;
  }

  std::mt19937_64 random_;
  LossHistory history_{kGuess};
  std::vector<Seen> seen_;
  std::int64_t step_ = 0;
  std::vector<Step> saved_;  // newest first
};

TEST(LossHistory, NoPruningRemovesTheNewestCheckpointKnownToBeGood) {
  for (std::uint64_t seed = 1; seed <= 300; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    RandomRun run(seed);
    for (int i = 0; i < 200 && !testing::Test::HasFailure(); ++i) run.act();
  }
}

TEST(LossHistory, BestAreTheLowestEvaluationsAndTheEarliestOfEqualOnes) {
  LossHistory history(kGuess);
  for (const auto& [step, value] : {std::pair(2, 3.0), {4, 2.0}, {6, kNaN}, {8, 2.0}, {10, 2.5}}) {
    history.evaluated(loss(step, value));
  }
  EXPECT_EQ(history.best(1).keep, 1);
  EXPECT_THAT(history.best(1).order, testing::ElementsAre(Step{4}, Step{8}, Step{10}, Step{2}));
  EXPECT_THAT(history.best(0).order, testing::IsEmpty()) << "none is to be kept";
  EXPECT_EQ(history.evaluation(Step{10}), 2.5);
  EXPECT_EQ(history.evaluation(Step{5}), std::nullopt);
  history.go_back(Step{8});
  EXPECT_THAT(history.best(1).order, testing::ElementsAre(Step{4}, Step{8}, Step{2}));
}

TEST(LossHistory, SaysWhyARunEndsEarly) {
  const trace::EarlyStop::Rule rule{2, 0};
  LossHistory history(kGuess);
  history.evaluated(loss(2, 3));
  history.evaluated(loss(4, 2));
  history.evaluated(loss(6, 2.5));
  EXPECT_EQ(history.end_reason(rule), "");
  history.evaluated(loss(8, kNaN));
  EXPECT_EQ(history.end_reason(rule),
            "the evaluation loss was not better than the 2 of step 4 for 2 evaluations");
  EXPECT_EQ(history.end_reason({2, 0.5}),
            "the evaluation loss was not better by more than 0.5 than the 2 of step 4 for 2 "
            "evaluations");
  EXPECT_EQ(history.end_reason({}), "");
  // What the steps after a checkpoint have shown does not count for a run that goes on from it.
  history.go_back(Step{6});
  EXPECT_EQ(history.end_reason(rule), "");
  LossHistory ruined(kGuess);
  ruined.evaluated(loss(2, kNaN));
  EXPECT_THAT(ruined.end_reason({1, 0}), HasSubstr("was not finite for 1 evaluation"));
}

}  // namespace
}  // namespace strait::run
