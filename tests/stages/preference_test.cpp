#include "stages/preference.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <cmath>

#include "framework/store/store_error.h"
#include "stages/reference_values.h"
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

// The package TRL: a KL term of the whole batch, then 1 - sigmoid on either side of it.
TEST(PreferenceLoss, OfKtoIsThatOfThePackage) {
  const at::Tensor sums = values({-6.0, -7.0, -1.0, -2.5, -3.0, -4.0});
  const at::Tensor reference = values({-5.0, -8.0, -2.0, -2.0, -3.5, -6.0});
  const at::Tensor undesirable = values({0, 0, 1, 0, 0, 0});
  const at::Tensor lengths = values({1, 1, 1, 1, 1, 1});
  PreferenceOptions options{PreferenceLoss::kto, 0.4};
  options.desirable_weight = 1.5;
  options.undesirable_weight = 0.7;
  const auto loss = [&](const at::Tensor& at) {
    return preference_loss(options, at, lengths, reference, undesirable).sums[0].item<double>();
  };
  const auto sigmoid = [](double x) { return 1 / (1 + std::exp(-x)); };
  const double divergence = (1.0 - 0.5 + 2.0) / 3;
  const double margins[] = {0.4 * (-1 - divergence), 0.4 * (divergence - 1),
                            0.4 * (0.5 - divergence)};
  EXPECT_NEAR(loss(sums),
              1.5 * (1 - sigmoid(margins[0])) + 0.7 * (1 - sigmoid(margins[1])) +
                  1.5 * (1 - sigmoid(margins[2])),
              1e-12);
  const PreferenceResult result = preference_loss(options, sums, lengths, reference, undesirable);
  EXPECT_NEAR(result.sums[1].item<double>(), margins[0] + margins[1] + margins[2], 1e-12);
  EXPECT_EQ(result.sums[2].item<double>(), 0) << "all are on the wrong side";
  for (std::int64_t i = 0; i < 6; i += 2) {
    at::Tensor more = sums.clone();
    more[i] += 1e-6;
    EXPECT_NEAR(-result.weights[i].item<double>(), (loss(more) - loss(sums)) / 1e-6, 1e-6);
    EXPECT_EQ(result.weights[i + 1].item<double>(), 0) << "the KL term has no gradient";
  }
  // A negative mean is no divergence.
  const at::Tensor below = values({-6.0, -9.0, -1.0, -2.5, -3.0, -9.0});
  EXPECT_NEAR(
      preference_loss(options, below, lengths, reference, undesirable).sums[1].item<double>(),
      0.4 * (-1 - 1 + 0.5), 1e-12);
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
  if (has_reference(loss)) settings.lora = adapters();
  return settings;
}

void expect_same_bits(const RunSettings& one) {
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

// With adapters, and of losses with a reference also without them: then it is the first
// model. Without campaigns, one loss of each kind.
TEST(Preferences, SplitsAndResumesGiveTheSameBits) {
  for (const PreferenceLoss loss :
       {PreferenceLoss::orpo, PreferenceLoss::simpo, PreferenceLoss::dpo, PreferenceLoss::kto}) {
    if (!campaigns() && loss == PreferenceLoss::simpo) continue;
    RunSettings settings = settings_of(loss);
    if (campaigns() || loss != PreferenceLoss::kto) expect_same_bits(settings);
    if (settings.lora == nullptr || (!campaigns() && loss == PreferenceLoss::dpo)) continue;
    settings.lora = nullptr;
    settings.tied = true;
    expect_same_bits(settings);
  }
}

// Forwards of the reference, one for each micro-batch of a row's first visit.
std::size_t reference_forwards(RunSettings settings, const Tensors& from = {},
                               std::int64_t first = 0) {
  std::size_t count = 0;
  settings.before = [&](Stage&, std::size_t, const Phase& phase, const schedules::Action&) {
    count += phase.reference == Phase::Reference::training ? 1 : 0;
  };
  const RunResult run = run_stages(settings, from, first);
  EXPECT_TRUE(run.errors.empty()) << run.errors.front();
  return count;
}

TEST(Preferences, ReferenceValuesAreComputedOnce) {
  for (const bool whole_model : {false, true}) {
    RunSettings settings = settings_of(PreferenceLoss::dpo);
    if (whole_model) settings.lora = nullptr;
    settings.evaluate = false;
    settings.steps = 2;
    const std::size_t all = reference_forwards(settings);
    settings.steps = 20;
    const std::size_t longer = reference_forwards(settings);
    settings.steps = 40;
    EXPECT_EQ(reference_forwards(settings), longer) << "a later epoch computed them again";
    EXPECT_EQ(whole_model, all == longer) << "only what the steps need, unless the model changes";
    settings.steps = 20;
    const RunResult run = run_stages(settings);
    settings.steps = 24;
    EXPECT_EQ(reference_forwards(settings, run.saved, 20), 0U) << "they are in the checkpoint";
  }
}

TEST(Preferences, ValuesOfACheckpointHaveLengthsThatAreCounts) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  for (const double count : {nan, -1.0, 2.0, 1e300}) {
    ReferenceValues restored(data::SampleOrderOptions{.rows = 1});
    EXPECT_THROW(restored.restore(
                     [&](const std::string&) {
                       return values({1, count, 0.5});
                     },
                     [](const std::string& name) { return name.ends_with(".0"); }),
                 store::StoreError)
        << count;
  }
}

TEST(Preferences, WithoutTheirReferenceAWholeModelIsNotResumed) {
  RunSettings settings = settings_of(PreferenceLoss::kto);
  settings.lora = nullptr;
  settings.evaluate = false;
  RunResult run = run_stages(settings);
  std::erase_if(run.saved, [](const auto& one) { return one.first.starts_with("reference."); });
  settings.steps = 24;
  const RunResult resumed = run_stages(settings, run.saved, 20);
  ASSERT_FALSE(resumed.errors.empty());
  EXPECT_NE(resumed.errors.front().find("lacks what train.preference.loss compares with"),
            std::string::npos)
      << resumed.errors.front();
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
