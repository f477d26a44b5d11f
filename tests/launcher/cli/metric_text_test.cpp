#include "launcher/cli/metric_text.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <nlohmann/json.hpp>

#include "framework/trace/combine_metrics.h"
#include "framework/trace/metric_json.h"
#include "framework/trace/step_metrics.h"
#include "framework/trace/traffic_metrics.h"

namespace strait::cli {
namespace {

trace::BoundaryMetrics boundary_of(const std::string& boundary, const std::string& direction) {
  trace::BoundaryMetrics step;
  step.boundary = boundary;
  step.direction = direction;
  step.raw_bytes = 8'000'000;
  step.sent_bytes = 1'000'000;
  step.change = 0.125;
  step.error = 0.0123;
  step.cache_bytes = 4'000'000;
  step.hits = 12;
  step.cache_misses = 4;
  step.evictions = 3;
  step.resends = 1;
  return step;
}

trace::SyncMetrics sync_of(const std::string& process) {
  return {process, 2, 1'000, 117'000, 0.5, 0.125};
}

TEST(MetricLabels, HaveTheMeanOfAllProcessesWhereAllAreKnown) {
  const auto labels = [](const char* status) {
    return metric_labels<trace::StepMetrics>(nlohmann::json::parse(status), trace::Status::line);
  };
  EXPECT_THAT(labels(R"({"tflops":{"0.0":1,"1.0":2},"mfu":{"0.0":0.25,"1.0":0.35}})"),
              testing::ElementsAre("1.5 TFLOP/s per stage", "MFU 30 %"));
  EXPECT_THAT(labels(R"({"tflops":{"0.0":0.027,"1.0":0.027}})"),
              testing::ElementsAre("27 GFLOP/s per stage"));
  EXPECT_THAT(labels(R"({"tflops":{"0.0":0},"mfu":{"0.0":0.25,"1.0":null}})"),
              testing::ElementsAre());
  trace::StepMetrics step;
  step.tflops = 1.5;
  step.mfu = std::numeric_limits<double>::quiet_NaN();
  EXPECT_THAT(step_labels(step, true), testing::ElementsAre("idle 0 %", "1.5 TFLOP/s per stage"));
}

TEST(BoundaryTable, SumsCountsAndKeepsLatestRatios) {
  trace::MetricTotals<trace::BoundaryMetrics> totals;
  totals.add(3, std::vector{boundary_of("1.0>2.0", "forward"), boundary_of("1.0>2.0", "backward")});
  trace::BoundaryMetrics later = boundary_of("1.0>2.0", "forward");
  later.change = std::nullopt;
  later.error = 0.5;
  later.cache_bytes = 5;
  totals.add(4, std::vector{later, boundary_of("0.0>1.0", "forward")});
  const std::vector<trace::BoundaryMetrics> all = totals.all();
  ASSERT_EQ(all.size(), 3U);
  EXPECT_EQ(all[0].boundary, "0.0>1.0");
  EXPECT_EQ(all[1].boundary, "1.0>2.0");
  EXPECT_EQ(all[2].direction, "backward");
  EXPECT_EQ(all[1].sent_bytes, 2'000'000U);
  EXPECT_EQ(all[1].raw_bytes, 16'000'000U);
  EXPECT_EQ(all[1].hits, 24U);
  EXPECT_EQ(all[1].cache_misses, 8U);
  EXPECT_EQ(all[1].evictions, 6U);
  EXPECT_EQ(all[1].resends, 2U);
  EXPECT_EQ(all[1].change, 0.125);
  EXPECT_EQ(all[1].error, 0.5);
  EXPECT_EQ(all[1].cache_bytes, 5U);
  EXPECT_EQ(sums_title("traffic", totals),
            "traffic, summed over steps 3 to 4; change, error, cached: of the last one");
}

TEST(BoundaryTable, LongChunkNamesMoveAllColumns) {
  const auto lines = metric_table(std::vector{boundary_of("0.0/0>1.0/0", "forward"),
                                              boundary_of("10.12/1>11.12/1", "backward")});
  ASSERT_EQ(lines.size(), 3U);
  EXPECT_THAT(lines[1], testing::ContainsRegex("^0.0/0>1.0/0 +forward "));
  EXPECT_THAT(lines[2], testing::ContainsRegex("^10.12/1>11.12/1  backward "));
  EXPECT_EQ(lines[0].find("direction"), lines[1].find("forward"));
  EXPECT_EQ(lines[0].size(), lines[1].size());
  EXPECT_EQ(lines[0].size(), lines[2].size());
}

TEST(BoundaryTable, HasHeadingAndOneLinePerDirection) {
  trace::BoundaryMetrics silent;
  silent.boundary = "1.0>2.0";
  silent.direction = "backward";
  const auto lines = metric_table(std::vector{boundary_of("0.0>1.0", "forward"), silent});
  ASSERT_EQ(lines.size(), 3U);
  EXPECT_THAT(lines[0], testing::HasSubstr("cached"));
  EXPECT_THAT(lines[1], testing::ContainsRegex("0.0>1.0 +forward +8.0 MB +1.0 MB +8.0x +12 % "
                                               "+1.2 % +4.0 MB +12 +4 +3 +1$"));
  EXPECT_THAT(lines[2], testing::ContainsRegex("0 B +0 B +- +- +- +0 B"));
  EXPECT_TRUE(metric_table(std::vector<trace::BoundaryMetrics>{}).empty());
}

TEST(BoundaryMetrics, ReadBackFromJson) {
  using Rows = std::vector<trace::BoundaryMetrics>;
  const auto read = trace::read_metrics<trace::BoundaryMetrics>;
  const Rows known = {boundary_of("0.0>1.0", "forward")};
  EXPECT_EQ(read(nlohmann::json::parse(trace::metrics_list(known).dump())), known);
  Rows unknown = known;
  unknown[0].change = std::nullopt;
  unknown[0].error = std::nullopt;
  EXPECT_TRUE(trace::metrics_list(unknown)[0].at("change").is_null());
  EXPECT_EQ(read(nlohmann::json::parse(trace::metrics_list(unknown).dump())), unknown);
  EXPECT_THROW(read(nlohmann::json::array({{{"boundary", 3}}})), nlohmann::json::exception);
}

TEST(SyncTable, SumsOverStepsByProcess) {
  trace::MetricTotals<trace::SyncMetrics> totals;
  totals.add(1, std::vector{sync_of("1.0"), sync_of("0.1")});
  totals.add(7, std::vector{sync_of("1.0")});
  EXPECT_EQ(sums_title("traffic", totals), "traffic, summed over steps 1 to 7");
  const std::vector<trace::SyncMetrics> all = totals.all();
  ASSERT_EQ(all.size(), 2U);
  EXPECT_EQ(all[0], sync_of("0.1"));
  EXPECT_EQ(all[1], (trace::SyncMetrics{"1.0", 4, 2'000, 234'000, 1.0, 0.25}));
}

TEST(SyncTable, HasHeadingAndOneLinePerProcess) {
  const trace::SyncMetrics silent{"0.1", 0, 0, 0, 0, 0};
  const auto lines = metric_table(std::vector{sync_of("0.0"), silent});
  ASSERT_EQ(lines.size(), 3U);
  EXPECT_THAT(lines[0], testing::HasSubstr("bfloat16 all-reduce"));
  EXPECT_THAT(lines[1],
              testing::ContainsRegex("^0.0 +2 +1.0 kB +117.0 kB +117.0x +0.25 s +0.125 s$"));
  EXPECT_THAT(lines[2], testing::ContainsRegex("^0.1 +0 +0 B +0 B +- +0 s +0 s$"));
  EXPECT_TRUE(metric_table(std::vector<trace::SyncMetrics>{}).empty());
}

TEST(SyncMetrics, ReadBackFromJson) {
  const auto read = trace::read_metrics<trace::SyncMetrics>;
  const std::vector<trace::SyncMetrics> rows = {sync_of("0.0")};
  EXPECT_EQ(read(nlohmann::json::parse(trace::metrics_list(rows).dump())), rows);
  EXPECT_THROW(read(nlohmann::json::array({{{"process", 3}}})), nlohmann::json::exception);
}

}  // namespace
}  // namespace strait::cli
