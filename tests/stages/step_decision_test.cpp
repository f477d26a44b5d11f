#include "stages/step_decision.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "tests/stages/example_report.h"

namespace strait::stages {
namespace {

TEST(DecideStep, ClipsToLimitAndNeverScalesUp) {
  const StepDecision tight = decide_step(example_report(), 1.0, false);
  EXPECT_DOUBLE_EQ(tight.gradient_norm, 5.0);
  EXPECT_DOUBLE_EQ(tight.gradient_factor, 1.0 / (5.0 + 1e-6));
  EXPECT_DOUBLE_EQ(decide_step(example_report(), 100.0, false).gradient_factor, 1.0);
  EXPECT_DOUBLE_EQ(decide_step(example_report(), 0.0, false).gradient_factor, 1.0);
}

TEST(DecideStep, SkipsStepIfAnyLossOrNormIsNotFinite) {
  StepReport loss = example_report();
  loss.loss = std::numeric_limits<double>::quiet_NaN();
  EXPECT_TRUE(decide_step(loss, 1.0, false).skip);
  StepReport norm = example_report();
  norm.squared_norms.push_back({9, std::numeric_limits<double>::infinity()});
  EXPECT_TRUE(decide_step(norm, 0.0, false).skip);
  EXPECT_FALSE(decide_step(example_report(), 1.0, true).skip);
}

TEST(DecideStep, HasNoSignOfWhatIsNoNumber) {
  StepReport report = example_report();
  report.loss = -std::numeric_limits<double>::quiet_NaN();
  report.squared_norms.push_back({9, -std::numeric_limits<double>::quiet_NaN()});
  const StepDecision decision = decide_step(report, 1.0, false);
  EXPECT_FALSE(std::signbit(decision.loss));
  EXPECT_FALSE(std::signbit(decision.gradient_norm));
}

// Adam would move the weights by its moments, on gradients of zero.
TEST(DecideStep, SkipsStepWithoutTargetsAndKnowsNoLoss) {
  StepReport report = example_report();
  report.target_tokens = 0;
  report.loss = 0;
  const StepDecision decision = decide_step(report, 1.0, false);
  EXPECT_TRUE(decision.skip);
  EXPECT_TRUE(std::isnan(decision.loss));
}

TEST(Divisor, OwnGradientIsOfOwnTokens) {
  EXPECT_DOUBLE_EQ(own_divisor_factor(77, 22), 3.5);
  EXPECT_DOUBLE_EQ(own_divisor_factor(77, 77), 1);
  EXPECT_DOUBLE_EQ(own_divisor_factor(77, 0), 1) << "none of its own";
}

TEST(Divisor, AfterAnEvictionSumIsOfTheMembersTokens) {
  StepReport report = example_report();
  EXPECT_DOUBLE_EQ(correct_divisor(report, 77, 22, /*sums_gradients=*/true), 3.5);
  EXPECT_EQ(report.target_tokens, 22);
  EXPECT_DOUBLE_EQ(report.loss, 1.25 * 3.5);
  EXPECT_DOUBLE_EQ(report.squared_norms[0].value, 9.0 * 3.5 * 3.5);
  EXPECT_DOUBLE_EQ(report.squared_norms[1].value, 16.0 * 3.5 * 3.5);
  // A limit between the norms before and after the correction.
  const StepDecision decision = decide_step(report, 7.0, false);
  EXPECT_DOUBLE_EQ(decision.gradient_norm, 5.0 * 3.5);
  EXPECT_DOUBLE_EQ(decision.gradient_factor, 7.0 / (17.5 + 1e-6));
}

// Every gradient has the divisor of its own replica already, only the loss is a sum.
TEST(Divisor, AfterAnEvictionGradientsThatAreNotSummedStay) {
  StepReport report = example_report();
  scale_norms(report, own_divisor_factor(77, 38));
  const std::vector<SquaredNorm> norms = report.squared_norms;
  EXPECT_DOUBLE_EQ(norms[0].value, 9.0 * (77.0 / 38) * (77.0 / 38));
  EXPECT_DOUBLE_EQ(correct_divisor(report, 77, 22, /*sums_gradients=*/false), 1);
  EXPECT_EQ(report.squared_norms, norms);
  EXPECT_EQ(report.target_tokens, 22);
  EXPECT_DOUBLE_EQ(report.loss, 1.25 * 3.5);
}

TEST(Divisor, MembersWithoutTokensChangeNothing) {
  StepReport report = example_report();
  EXPECT_DOUBLE_EQ(correct_divisor(report, 77, 0, true), 1);
  EXPECT_EQ(report.loss, example_report().loss);
  EXPECT_EQ(report.squared_norms, example_report().squared_norms);
  EXPECT_EQ(report.target_tokens, 0);
}

}  // namespace
}  // namespace strait::stages
