#include "launcher/run/report.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

namespace strait::launcher {
namespace {

Plan tiny_plan() {
  Plan plan;
  plan.recipe.name = "a<b>&c";
  plan.model_config = R"({"model_type": "gpt2", "n_layer": 2, "n_embd": 8, "n_head": 2})";
  return plan;
}

TEST(Report, IsOnePageThatNeedsNothingElse) {
  const std::vector<nlohmann::json> metrics = {
      {{"step", 1}, {"loss", 4.0}, {"tokens_per_second", 10.0}},
      {{"step", 2}, {"loss", nullptr}, {"tokens_per_second", 12.0}},
      {{"step", 3}, {"loss", 2.0}, {"tokens_per_second", 11.0}}};
  const std::string page = report_page(tiny_plan(), metrics);
  EXPECT_THAT(page, testing::HasSubstr("from 4 (step 1) to 2 (step 3)"));
  EXPECT_THAT(page, testing::HasSubstr("points=\"0.0,0.0 860.0,220.0 \""));
  EXPECT_THAT(page, testing::Not(testing::HasSubstr("http")));
  EXPECT_THAT(page, testing::Not(testing::HasSubstr("a<b>")));
  EXPECT_THAT(page, testing::HasSubstr("a&lt;b&gt;&amp;c"));
}

TEST(Report, OfARunWithoutStepsHasThePlanAndNoCurves) {
  const std::string page = report_page(tiny_plan(), {});
  EXPECT_THAT(page, testing::HasSubstr("gpt2"));
  EXPECT_THAT(page, testing::Not(testing::HasSubstr("<svg")));
}

}  // namespace
}  // namespace strait::launcher
