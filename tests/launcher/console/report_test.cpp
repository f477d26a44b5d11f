#include "launcher/console/report.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

namespace strait::console {
namespace {

TEST(Report, IsSelfContainedPage) {
  const std::vector<nlohmann::json> metrics = {
      {{"step", 1}, {"loss", 4.0}, {"tokens_per_second", 10.0}},
      {{"step", 2}, {"loss", nullptr}, {"tokens_per_second", 12.0}},
      {{"step", 3}, {"loss", 2.0}, {"tokens_per_second", 11.0}}};
  const std::string page = report_page("a<b>&c", "gpt2 with 2 blocks", metrics);
  EXPECT_THAT(page, testing::HasSubstr("from 4 (step 1) to 2 (step 3)"));
  EXPECT_THAT(page, testing::HasSubstr("points=\"0.0,0.0 860.0,220.0 \""));
  EXPECT_THAT(page, testing::Not(testing::HasSubstr("http")));
  EXPECT_THAT(page, testing::Not(testing::HasSubstr("a<b>")));
  EXPECT_THAT(page, testing::HasSubstr("a&lt;b&gt;&amp;c"));
}

TEST(Report, RunWithoutStepsHasPlanAndNoCharts) {
  const std::string page = report_page("a<b>&c", "gpt2 with 2 blocks", {});
  EXPECT_THAT(page, testing::HasSubstr("gpt2"));
  EXPECT_THAT(page, testing::Not(testing::HasSubstr("<svg")));
}

}  // namespace
}  // namespace strait::console
