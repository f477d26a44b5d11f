#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "launcher/compute/loaded_run.h"

namespace strait::compute {
namespace {

TEST(PredictedStep, HasTheWorkAndTheLinksOfEveryStage) {
  std::ifstream stream("tests/launcher/recipe/plan.json");
  const plan::Plan plan = plan::plan_from_json(nlohmann::json::parse(stream));
  const cli::StepTimeline predicted = predicted_step(plan);
  ASSERT_EQ(predicted.rows.size(), 2U);
  EXPECT_GT(predicted.seconds, 0);
  const nlohmann::json timeline = cli::timeline_figure(predicted);
  EXPECT_TRUE(timeline["rows"][0]["lanes"].contains("link"));
  EXPECT_EQ(timeline["rows"][0]["lanes"]["compute"].size(),
            static_cast<std::size_t>(plan.micro_batches * 2));
}

TEST(PredictedStep, HasNoRowsWithoutProcesses) {
  EXPECT_TRUE(predicted_step(plan::Plan()).rows.empty());
}

}  // namespace
}  // namespace strait::compute
