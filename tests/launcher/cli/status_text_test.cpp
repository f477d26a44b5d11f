#include "launcher/cli/status_text.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>

#include "framework/trace/metric_json.h"
#include "framework/trace/traffic_metrics.h"
#include "launcher/cli/loss_chart.h"
#include "launcher/run/forecast_check.h"

namespace strait::cli {
namespace {

using nlohmann::json;
using testing::AllOf;
using testing::Contains;
using testing::HasSubstr;
using testing::Not;

json training() {
  json status = {{"state", "training"},
                 {"step", 12},
                 {"steps", 48},
                 {"loss", 0.5},
                 {"tokens_per_second", 1234.0},
                 {"eta_seconds", 41.0},
                 {"checkpoint", 10},
                 {"boundaries", json::array()},
                 {"sync", json::array()},
                 {"processes", json::array()}};
  for (int stage = 0; stage < 4; ++stage) {
    status["processes"].push_back({{"process", std::to_string(stage) + ".0"},
                                   {"host", "h\x1b[2J" + std::to_string(stage)},
                                   {"pid", 40 + stage},
                                   {"step", 12},
                                   {"phase", "forward"},
                                   {"silent_seconds", 0.2}});
  }
  return status;
}

std::size_t characters(const std::string& text) {
  std::size_t count = 0;
  for (const char byte : text) count += (static_cast<unsigned char>(byte) & 0xC0U) != 0x80U;
  return count;
}

TEST(WatchFrame, ShowsProgressLossesAndProcesses) {
  const std::vector<double> losses = {2.0, 1.0, 0.5};
  const auto lines = watch_frame("runs/x: training", training(), true, losses, {100, 30});
  EXPECT_EQ(lines[0], "runs/x: training");
  EXPECT_THAT(lines[1], HasSubstr("25 %"));
  EXPECT_THAT(lines[1], HasSubstr("step 12/48"));
  EXPECT_THAT(lines, Contains(HasSubstr("█")));
  EXPECT_THAT(lines, Contains(HasSubstr("stage 3.0 on h[2J3 (pid 43): step 12, forward")));
}

// The console and the report show sums, in a table of the same columns.
TEST(StateParts, SayThatTrafficIsOfOneStep) {
  json status = training();
  EXPECT_TRUE(state_parts(status, false).front().empty());
  const trace::BoundaryMetrics boundary;
  status["boundaries"] = json::parse(trace::metrics_list(std::vector{boundary}).dump());
  status["sync"] = json::parse(trace::metrics_list(std::vector{trace::SyncMetrics()}).dump());
  const auto lines = state_parts(status, false).front();
  ASSERT_EQ(lines.size(), 6U);
  EXPECT_EQ(lines[0], "boundary traffic of step 12 alone");
  EXPECT_EQ(lines[3], "traffic between replicas of step 12 alone");
}

TEST(StateParts, ShowTheForecastBesideWhatStepsTake) {
  json status = training();
  EXPECT_TRUE(state_parts(status, false).back().empty());
  const std::vector<run::PartSeconds> parts = {
      {"a step", 2.71, 3.21}, {"compute of stage 1.0 (host b)", 0.9, std::nullopt}};
  status["parts"] = json::parse(trace::metrics_list(parts).dump());
  const auto lines = state_parts(status, false).back();
  ASSERT_EQ(lines.size(), 4U);
  EXPECT_THAT(lines[2], AllOf(HasSubstr("a step"), HasSubstr("2.71 s"), HasSubstr("3.21 s")));
  EXPECT_THAT(lines[3], HasSubstr("compute of stage 1.0 (host b)"));
}

TEST(WatchFrame, ShowsNoProcessesOfARunThatIsNotLive) {
  const auto lines = watch_frame("runs/x: its launcher is gone", training(), false, {}, {100, 30});
  EXPECT_THAT(lines[1], HasSubstr("step 12/48"));
  EXPECT_THAT(lines, Not(Contains(HasSubstr("stage "))));
}

TEST(WatchFrame, FitsEveryScreen) {
  const std::vector<double> losses(100, 1.5);
  for (std::size_t rows = 1; rows < 30; ++rows) {
    for (const std::size_t columns : {1U, 9U, 10U, 40U, 200U}) {
      const auto lines = watch_frame("runs/x", training(), true, losses, {columns, rows});
      EXPECT_LE(lines.size(), rows);
      for (const std::string& line : lines) EXPECT_LE(characters(line), columns) << line;
    }
  }
}

// Nothing is cut off at the right edge of a terminal.
TEST(WatchFrame, WrapsWhatIsWiderThanTheScreen) {
  json status = training();
  status["replicas"] = {0};
  status["left"] = {{"1", {{"step", 7}, {"text", "stage 0.1 (host b) sent nothing for 5 s"}}}};
  status["processes"][0]["waits_for"] =
      "waits 41 s for forward of micro-batch 7 from stage 1 (host b): 3.1 of 16.8 MB received, "
      "last byte 38 s ago";
  for (const std::size_t columns : {80U, 200U}) {
    std::string words;
    for (const std::string& line : watch_frame("runs/x", status, true, {}, {columns, 40})) {
      EXPECT_LE(characters(line), columns) << line;
      const std::size_t begin = line.find_first_not_of(' ');
      if (begin != line.npos) words += " " + line.substr(begin);
    }
    EXPECT_THAT(words, HasSubstr("checkpoint at step 10 loss 0.5 · 1234 tok/s"));
    EXPECT_THAT(words, HasSubstr("replica 1 left at step 7: stage 0.1 (host b) sent nothing"));
    EXPECT_THAT(words, HasSubstr("16.8 MB received, last byte 38 s ago; last heard 0 s ago"));
  }
}

TEST(WatchFrame, CountsHiddenLines) {
  const auto lines = watch_frame("runs/x", training(), true, {}, {100, 4});
  ASSERT_EQ(lines.size(), 4U);
  EXPECT_EQ(lines.back(), "… 5 more lines");
}

TEST(LossChart, FallingLossFallsToTheRight) {
  const std::vector<double> losses = {4, 3, 2, 1};
  const auto lines = loss_chart(losses, 13, 2);
  ASSERT_EQ(lines.size(), 2U);
  EXPECT_EQ(lines[0], "      4 │█▃  ");
  EXPECT_EQ(lines[1], "      1 │██▆▁");
}

TEST(LossChart, LeavesGapsAndTakesMeans) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  EXPECT_EQ(loss_chart(std::vector{1.0, nan, 1.0}, 20, 1),
            (std::vector<std::string>{"      1 │▁ ▁"}));
  EXPECT_TRUE(loss_chart(std::vector{nan}, 20, 4).empty());
  EXPECT_TRUE(loss_chart({}, 20, 4).empty());
  EXPECT_TRUE(loss_chart(std::vector{1.0}, 9, 4).empty());
  // 100 values in 2 columns: means of 24.5 and 74.5.
  std::vector<double> ramp(100);
  for (std::size_t i = 0; i < ramp.size(); ++i) ramp[i] = static_cast<double>(i);
  const auto lines = loss_chart(ramp, 11, 2);
  EXPECT_EQ(lines[0], "   74.5 │ █");
  EXPECT_EQ(lines[1], "   24.5 │▁█");
}

TEST(FoldedText, GoesOnBelowWhereTheMeaningBegins) {
  const std::string help =
      "Usage: strait x\n"
      "  --set TEXT ...      key=value instead of the recipe's; repeatable\n"
      "                      here: in this process; hosts: over the stages\n";
  EXPECT_EQ(folded_text(help, 48),
            "Usage: strait x\n"
            "  --set TEXT ...      key=value instead of the\n"
            "                      recipe's; repeatable\n"
            "                      here: in this process;\n"
            "                      hosts: over the stages\n");
  EXPECT_EQ(folded_text(help, 0), help);
  EXPECT_EQ(folded_text(help, 200), help);
}

TEST(FoldedText, KeepsWordsWholeAndCountsCharacters) {
  EXPECT_EQ(folded_text("aaaaaaaaaaaaaaaaaaaa bb\n", 10), "aaaaaaaaaaaaaaaaaaaa\n  bb\n");
  EXPECT_EQ(folded_text("éééé éééé\n", 9), "éééé éééé\n");
  EXPECT_EQ(folded_text("éééé éééé\n", 8), "éééé\n  éééé\n");
}

TEST(FoldedText, KeepsCommandsWhole) {
  const std::string command = "try       ./strait generate runs/quickstart --prompt 'a b c'\n";
  EXPECT_EQ(folded_text(command, 30), command);
}

}  // namespace
}  // namespace strait::cli
