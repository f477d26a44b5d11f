#include "stages/step_decision.h"

#include <gtest/gtest.h>

#include <limits>

namespace strait::stages {
namespace {

StepReport example() {
  StepReport report;
  report.step = store::Step{41};
  report.loss = 1.25;
  report.target_tokens = 77;
  report.squared_norms = {{3, 9.0}, {5, 16.0}};
  return report;
}

TEST(DecideStep, ClipsToLimitAndNeverScalesUp) {
  const StepDecision tight = decide_step(example(), 1.0, false);
  EXPECT_DOUBLE_EQ(tight.gradient_norm, 5.0);
  EXPECT_DOUBLE_EQ(tight.gradient_factor, 1.0 / (5.0 + 1e-6));
  EXPECT_DOUBLE_EQ(decide_step(example(), 100.0, false).gradient_factor, 1.0);
  EXPECT_DOUBLE_EQ(decide_step(example(), 0.0, false).gradient_factor, 1.0);
}

TEST(DecideStep, SkipsStepIfAnyLossOrNormIsNotFinite) {
  StepReport loss = example();
  loss.loss = std::numeric_limits<double>::quiet_NaN();
  EXPECT_TRUE(decide_step(loss, 1.0, false).skip);
  StepReport norm = example();
  norm.squared_norms.push_back({9, std::numeric_limits<double>::infinity()});
  EXPECT_TRUE(decide_step(norm, 0.0, false).skip);
  EXPECT_FALSE(decide_step(example(), 1.0, true).skip);
}

}  // namespace
}  // namespace strait::stages
