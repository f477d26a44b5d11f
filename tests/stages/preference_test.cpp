#include "stages/preference.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <cmath>

#include "tests/stages/compare_runs.h"

namespace strait::stages {
namespace {

using Blocks = std::vector<std::pair<int, int>>;

at::Tensor values(const std::vector<double>& list) { return at::tensor(list, at::kDouble); }

double log_sigmoid(double x) { return -std::log1p(std::exp(-x)); }

TEST(PreferenceLoss, IsThatOfThePapers) {
  const at::Tensor sums = values({-6.0, -12.0, -1.0, -0.5});
  const at::Tensor lengths = values({3, 4, 2, 1});
  const auto loss = [&](const PreferenceOptions& options, const at::Tensor& reference = {}) {
    return preference_loss(options, sums, lengths, reference).sums[0].item<double>();
  };
  const auto odds = [](double mean) { return mean - std::log1p(-std::exp(mean)); };
  EXPECT_NEAR(
      loss({PreferenceLoss::orpo, 0.3}),
      2 - 0.3 * log_sigmoid(odds(-2) - odds(-3)) + 0.5 - 0.3 * log_sigmoid(odds(-0.5) - odds(-0.5)),
      1e-12);
  EXPECT_NEAR(loss({PreferenceLoss::simpo, 2.0, 0.5}),
              -log_sigmoid(2 * (-2 + 3) - 0.5) - log_sigmoid(-0.5), 1e-12);
  const at::Tensor reference = values({-5.0, -10.0, -2.0, -2.5});
  EXPECT_NEAR(loss({PreferenceLoss::dpo, 0.1}, reference),
              -log_sigmoid(0.1 * (-1 + 2)) - log_sigmoid(0.1 * (1 - 2)), 1e-12);
}

TEST(PreferenceLoss, WeightsAreItsDerivatives) {
  const at::Tensor sums = values({-6.0, -12.0, -1.0, -0.5});
  const at::Tensor lengths = values({3, 4, 2, 1});
  const at::Tensor reference = values({-5.0, -10.0, -2.0, -2.5});
  for (const PreferenceLoss kind :
       {PreferenceLoss::orpo, PreferenceLoss::simpo, PreferenceLoss::dpo}) {
    const PreferenceOptions options{kind, 0.7, 0.5};
    const auto loss = [&](const at::Tensor& at) {
      return preference_loss(options, at, lengths, reference).sums[0].item<double>();
    };
    const at::Tensor weights = preference_loss(options, sums, lengths, reference).weights;
    for (std::int64_t i = 0; i < 4; ++i) {
      at::Tensor more = sums.clone();
      at::Tensor less = sums.clone();
      more[i] += 1e-6;
      less[i] -= 1e-6;
      EXPECT_NEAR(-weights[i].item<double>(), (loss(more) - loss(less)) / 2e-6, 1e-8);
    }
  }
}

TEST(PreferenceLoss, CountsPairsWhoseChosenAnswerIsRated) {
  const PreferenceResult result = preference_loss(
      {PreferenceLoss::simpo, 2.0, 0.5}, values({-6, -12, -1, -0.5}), values({3, 4, 2, 1}), {});
  EXPECT_DOUBLE_EQ(result.sums[1].item<double>(), 2 * 1.0);
  EXPECT_DOUBLE_EQ(result.sums[2].item<double>(), 1) << "equal answers are not rated";
}

// An answer that is learnt completely has infinite odds.
TEST(PreferenceLoss, IsFiniteForACertainAnswer) {
  const PreferenceResult result =
      preference_loss({PreferenceLoss::orpo, 0.1}, values({0, -3}), values({2, 3}), {});
  EXPECT_TRUE(result.sums.isfinite().all().item<bool>());
  EXPECT_TRUE(result.weights.isfinite().all().item<bool>());
}

std::shared_ptr<const models::Lora> adapters() {
  models::Lora lora;
  lora.rank = 2;
  return std::make_shared<const models::Lora>(lora);
}

RunSettings settings_of(PreferenceLoss loss) {
  RunSettings settings;
  settings.preference = {loss, 0.1, 0.5};
  settings.evaluate = true;
  settings.dropout = 0.1;
  settings.tied = false;
  if (loss == PreferenceLoss::dpo) settings.lora = adapters();
  return settings;
}

TEST(Preferences, SplitsAndResumesGiveTheSameBits) {
  for (const PreferenceLoss loss :
       {PreferenceLoss::orpo, PreferenceLoss::simpo, PreferenceLoss::dpo}) {
    const RunSettings one = settings_of(loss);
    const RunResult whole = run_stages(one);
    ASSERT_TRUE(whole.errors.empty()) << whole.errors.front();
    ASSERT_NE(whole.losses.back(), whole.losses.front()) << "nothing was learnt";
    RunSettings split = one;
    split.blocks = {{0, 1}, {2, 3}};
    split.recompute = true;
    expect_same_run(whole, run_stages(split), "two stages");
    split.blocks = {{0, 0}, {1, 1}, {2, 3}};
    split.recompute = false;
    split.schedule = "zero_bubble";
    expect_same_run(whole, run_stages(split), "three stages");
    RunSettings until = split;
    until.evaluate = false;
    until.stop_at = 8;
    const RunResult stopped = run_stages(until);
    ASSERT_EQ(stopped.steps, 8);
    split.evaluate = false;
    RunSettings through = one;
    through.evaluate = false;
    expect_same_run(run_stages(through),
                    joined(stopped, run_stages(split, stopped.saved, stopped.steps)), "resumed");
  }
}

// The mean over the pairs of all replicas, whose numbers of pairs differ.
TEST(Preferences, ReplicasShareTheirPairs) {
  RunSettings settings = settings_of(PreferenceLoss::dpo);
  settings.dropout = 0;
  settings.shuffle = false;
  settings.steps = 3;
  settings.evaluate = false;
  RunSettings replicas = settings;
  replicas.replicas = 2;
  replicas.micro_batches = 2;
  replicas.sync.method = "allreduce";
  const RunResult one = run_stages(settings);
  const RunResult two = run_stages(replicas);
  ASSERT_TRUE(two.errors.empty()) << two.errors.front();
  for (std::size_t i = 0; i < one.losses.size(); ++i) {
    EXPECT_NEAR(one.losses[i], two.losses[i], 1e-6) << "step " << i;
    EXPECT_NEAR(one.norms[i], two.norms[i], 1e-5) << "step " << i;
  }
}

// New adapters change nothing, so the model is its own reference, in every bit.
TEST(Preferences, DpoBeginsAtTheReference) {
  RunSettings settings = settings_of(PreferenceLoss::dpo);
  settings.dropout = 0;
  settings.steps = 2;
  settings.blocks = {{0, 1}, {2, 3}};
  const RunResult run = run_stages(settings);
  ASSERT_TRUE(run.errors.empty()) << run.errors.front();
  EXPECT_DOUBLE_EQ(run.losses.front(), std::log(2));
  EXPECT_NE(run.losses.back(), run.losses.front());
}

}  // namespace
}  // namespace strait::stages
