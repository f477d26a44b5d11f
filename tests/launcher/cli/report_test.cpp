#include "launcher/cli/report.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "framework/trace/metric_json.h"
#include "framework/trace/traffic_metrics.h"

namespace strait::cli {
namespace {

TEST(Report, IsSelfContainedPage) {
  Report report;
  report.add({{"step", 1}, {"loss", 4.0}, {"tokens_per_second", 10.0}});
  report.add({{"step", 2}, {"loss", nullptr}, {"tokens_per_second", 12.0}});
  report.add({{"step", 3}, {"loss", 2.0}, {"tokens_per_second", 11.0}});
  const std::string page = report.page("a<b>&c", "gpt2 with 2 blocks");
  EXPECT_THAT(page, testing::HasSubstr("from 4 (step 1) to 2 (step 3)"));
  EXPECT_THAT(page, testing::HasSubstr("data-points=\"[[1,4,4],[3,2,2]]\""));
  // Nothing is fetched: the only address is the name of a vocabulary.
  EXPECT_THAT(page, testing::Not(testing::ContainsRegex("src=|href=|url\\(|fetch\\(|import")));
  EXPECT_THAT(page, testing::Not(testing::HasSubstr("a<b>")));
  EXPECT_THAT(page, testing::HasSubstr("a&lt;b&gt;&amp;c"));
}

TEST(Report, RunWithoutStepsHasPlanAndNoCharts) {
  const std::string page = Report().page("a<b>&c", "gpt2 with 2 blocks");
  EXPECT_THAT(page, testing::HasSubstr("gpt2"));
  EXPECT_THAT(page, testing::Not(testing::HasSubstr("<figure")));
}

TEST(Report, SkipsValuesThatAreNotWhatTheirKeysSay) {
  Report report;
  const auto add = [&report](const char* line) { report.add(nlohmann::json::parse(line)); };
  add(R"({"step":1,"loss":4})");
  for (const char* line : {"null", "[1]", "7", R"({"loss":9})", R"({"step":"x","loss":9})",
                           R"({"step":2,"loss":"9","boundaries":5,"sync":{"a":1}})",
                           R"({"step":3,"boundaries":[{"boundary":7}],"sync":[[]]})"}) {
    EXPECT_NO_THROW(add(line)) << line;
  }
  EXPECT_THAT(report.page("run", "plan"), testing::HasSubstr("from 4 (step 1) to 4 (step 1)"));
}

TEST(Report, ShowsHowTheRunEndedLast) {
  Report report;
  for (const char* line : {"null", "[1]", R"({"event":"ended","step":"x","meaning":7})",
                           R"({"event":"ended","step":3,"meaning":"stopped","cause":""})"}) {
    report.add_event(nlohmann::json::parse(line));
  }
  EXPECT_THAT(report.page("run", "plan"), testing::HasSubstr("<p>Ended at step 3: stopped</p>"));
  report.add_event(
      {{"event", "ended"}, {"step", 5}, {"meaning", "out of memory"}, {"cause", "stage <1>"}});
  EXPECT_THAT(report.page("run", "plan"),
              testing::HasSubstr("<p>Ended at step 5: out of memory. stage &lt;1&gt;</p>"));
}

TEST(Report, ShowsEvaluationLosses) {
  Report report;
  report.add_event({{"event", "evaluated"}, {"step", 2}, {"loss", 5.5}, {"tokens", 3}});
  report.add_event({{"event", "evaluated"}, {"step", 4}, {"loss", 4.5}, {"tokens", 3}});
  report.add_event({{"event", "evaluated"}, {"step", 4}, {"loss", 4.25}, {"tokens", 3}});
  const std::string page = report.page("run", "plan");
  EXPECT_THAT(page, testing::HasSubstr("<h2>Evaluation loss</h2>"));
  EXPECT_THAT(page, testing::HasSubstr("from 5.5 (step 2) to 4.25 (step 4)"));
  EXPECT_THAT(Report().page("run", "plan"), testing::Not(testing::HasSubstr("Evaluation loss")));
}

TEST(Report, BeginsWithWhatTheRunDid) {
  Report report;
  trace::BoundaryMetrics boundary;
  boundary.raw_bytes = 8000;
  boundary.sent_bytes = 1000;
  const auto rows = nlohmann::json::parse(trace::metrics_list(std::vector{boundary}).dump());
  for (const int step : {1, 2}) {
    report.add({{"step", step},
                {"loss", 5.0 / step},
                {"tokens", 100},
                {"seconds", 2.0},
                {"bytes_forward", 500},
                {"bytes_sync", 500},
                {"boundaries", rows}});
  }
  const std::string page = report.page("run", "plan");
  for (const char* fact : {"<dd>5 to 2.5</dd>", "<dd>200</dd>", "<dd>50</dd>", "<dd>0:04</dd>",
                           "<dt>sent</dt><dd>2.0 kB</dd>", "8.0 times less than float32"}) {
    EXPECT_THAT(page, testing::HasSubstr(fact));
  }
}

TEST(Report, TablesSayThatTheyAreSums) {
  Report report;
  const trace::BoundaryMetrics boundary;
  const auto rows = nlohmann::json::parse(trace::metrics_list(std::vector{boundary}).dump());
  for (const int step : {2, 3}) report.add({{"step", step}, {"boundaries", rows}});
  EXPECT_THAT(report.page("run", "plan"),
              testing::HasSubstr("<h2>Boundary traffic, summed over steps 2 to 3;"));
}

TEST(Report, KeepsPeaksOfLongRunsInBoundedPage) {
  Report report;
  for (int step = 1; step <= 100'000; ++step) {
    report.add({{"step", step}, {"loss", step == 77'777 ? 100.0 : 2.0 + step % 2}});
  }
  const std::string page = report.page("run", "plan");
  EXPECT_LT(page.size(), 100'000U);
  EXPECT_THAT(page, testing::HasSubstr("from 3 (step 1) to 2 (step 100000)"));
  EXPECT_THAT(page, testing::HasSubstr("lowest 2, highest 100"));
  EXPECT_THAT(page, testing::ContainsRegex("\\[77[0-9]*,[23],100\\]"));  // the peak is drawn
}

}  // namespace
}  // namespace strait::cli
