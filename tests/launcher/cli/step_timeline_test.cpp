#include "launcher/cli/step_timeline.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <sstream>

namespace strait::cli {
namespace {

using nlohmann::json;

// A trace of two processes, whose step n ends at n × 1000 µs, or 10 µs later at the second; step 4
// takes 500 µs longer.
std::string two_processes() {
  std::string text = R"({"displayTimeUnit":"ms","traceEvents":[)";
  const auto add = [&text](const json& event) {
    if (text.back() != '[') text += ",\n";
    text += event.dump();
  };
  for (int process = 0; process < 2; ++process) {
    const std::string name = "stage " + std::to_string(process) + ".0";
    add({{"ph", "M"}, {"name", "process_name"}, {"pid", process}, {"args", {{"name", name}}}});
    const auto span = [&](const char* what, const char* lane, double start, double duration,
                          const json& arguments) {
      add({{"ph", "X"},
           {"name", what},
           {"cat", lane},
           {"pid", process},
           {"tid", 0},
           {"ts", start},
           {"dur", duration},
           {"args", arguments}});
    };
    for (int step = 1; step <= 5; ++step) {
      const double end = step * 1000.0 + process * 10 + (step > 3 ? 500 : 0);
      span("wait", "wait", end - 900, 200, {{"micro_batch", 0}});
      span("forward", "compute", end - 700, 600, {{"micro_batch", 0}});
      span("activation", "send", end - 100, 50, {{"micro_batch", 0}, {"bytes", 7}});
      span("update", "compute", end - 50, 50, {{"step", step}});
    }
  }
  return text + "]}\n";
}

TEST(MeasuredStep, IsTheOneOfMedianDuration) {
  std::istringstream trace(two_processes());
  const StepTimeline step = measured_step(trace);
  EXPECT_THAT(step.step, testing::AnyOf(2, 3, 5));  // not the long one
  EXPECT_NEAR(step.seconds, 1010e-6, 1e-9);
  ASSERT_EQ(step.rows.size(), 2U);
  EXPECT_EQ(step.rows[1].process, "stage 1.0");
  const StepTimeline::Span& wait = step.rows[0].spans.at(0);
  EXPECT_EQ(wait.lane, "compute");
  EXPECT_EQ(wait.name, "wait");
  EXPECT_NEAR(wait.start, 100e-6, 1e-9);
  EXPECT_NEAR(wait.seconds, 200e-6, 1e-9);
}

TEST(MeasuredStep, NeedsAWholeStepOfAllProcesses) {
  for (const char* text : {"", "{", "[]", "{\"traceEvents\":[]}\n", "null\n{\"pid\":1}\n"}) {
    std::istringstream trace(text);
    EXPECT_TRUE(measured_step(trace).rows.empty()) << text;
  }
  std::istringstream trace(
      R"({"displayTimeUnit":"ms","traceEvents":[{"ph":"X","name":"update","pid":0,"ts":1,"dur":1,)"
      R"("args":{"step":1}}]})");
  EXPECT_TRUE(measured_step(trace).rows.empty());
}

TEST(TimelineFigure, IsBoundedAndSaysWhatIsLeftOut) {
  StepTimeline timeline;
  timeline.rows.push_back({"stage 0.0", {}});
  for (int i = 0; i < 40'000; ++i) {
    timeline.rows[0].spans.push_back({"compute", "forward", i * 1.0, i + 1.0, i});
  }
  const json figure = timeline_figure(timeline);
  const json& lane = figure["rows"][0]["lanes"]["compute"];
  EXPECT_EQ(lane.size(), 30'000U);
  EXPECT_EQ(figure["left_out"], 10'000);
  EXPECT_EQ(lane[0], json::parse("[10000000000,10001000000,0,10000]"));
  EXPECT_EQ(figure["names"], json::parse(R"(["forward"])"));
}

}  // namespace
}  // namespace strait::cli
