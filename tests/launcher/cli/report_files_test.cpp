#include "launcher/cli/report_files.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "tests/scratch_directory.h"

namespace strait::cli {
namespace {

using testing::ElementsAre;

class GrowingFileTest : public testing::Test {
 protected:
  void append(const std::string& text) const { std::ofstream(path_, std::ios::app) << text; }
  std::vector<std::string> read_on() {
    std::vector<std::string> lines;
    file_.read_on(path_, [&](const std::string& line) { lines.push_back(line); });
    return lines;
  }
  const ScratchDirectory folder_;
  const std::filesystem::path path_ = folder_ / "lines";
  GrowingFile file_;
};

TEST_F(GrowingFileTest, GivesEachWholeLineOnce) {
  EXPECT_FALSE(file_.replaced(path_));  // there is none
  EXPECT_THAT(read_on(), ElementsAre());
  append("a\nb");
  EXPECT_FALSE(file_.replaced(path_));
  EXPECT_THAT(read_on(), ElementsAre("a"));
  append("c\n");
  EXPECT_FALSE(file_.replaced(path_));
  EXPECT_THAT(read_on(), ElementsAre("bc"));
}

TEST_F(GrowingFileTest, NoticesAnotherFileAndACutOne) {
  append("a\nb\n");
  EXPECT_FALSE(file_.replaced(path_));
  read_on();
  std::filesystem::resize_file(path_, 2);
  EXPECT_TRUE(file_.replaced(path_));
  EXPECT_THAT(read_on(), ElementsAre("a"));
  ScratchDirectory::write(folder_ / "next", "x\ny\nz\n");
  std::filesystem::rename(folder_ / "next", path_);
  EXPECT_TRUE(file_.replaced(path_));
  EXPECT_THAT(read_on(), ElementsAre("x", "y", "z"));
  EXPECT_FALSE(file_.replaced(path_));
}

TEST(ReportFiles, ReadsOnAndForgetsStepsThatARestartTakesBack) {
  std::ifstream stream("tests/launcher/recipe/plan.json");
  const ReportPlan plan = report_plan(plan::plan_from_json(nlohmann::json::parse(stream)), "", {});
  const ScratchDirectory run;
  const auto page = [&] { return ScratchDirectory::read(run / "report.html"); };
  ReportFiles files;
  const auto add = [&](const char* file, const char* line) {
    std::ofstream(run / file, std::ios::app) << line << '\n';
  };
  add("metrics.jsonl", R"({"step":1,"loss":4})");
  files.write(run.path(), plan);
  add("metrics.jsonl", R"({"step":2,"loss":3})");
  add("events.jsonl", R"({"event":"checkpoint","step":1})");
  files.write(run.path(), plan);
  EXPECT_THAT(page(), testing::HasSubstr(R"("points":[[1,4,4],[2,3,3]])"));
  EXPECT_THAT(page(), testing::HasSubstr(R"([1,"checkpoint","checkpoint"])"));
  ScratchDirectory::write(run / "next", "{\"step\":1,\"loss\":4}\n{\"step\":2,\"loss\":2}\n");
  std::filesystem::rename(run / "next", run / "metrics.jsonl");
  files.write(run.path(), plan);
  EXPECT_THAT(page(), testing::HasSubstr(R"("points":[[1,4,4],[2,2,2]])"));
  EXPECT_THAT(page(), testing::HasSubstr("checkpoint\",\"checkpoint"));
}

// Two processes that end these two steps each.
std::string trace_of(int first, int second) {
  std::string text = R"({"displayTimeUnit":"ms","traceEvents":[)";
  for (int process = 0; process < 2; ++process) {
    const int from = process == 0 ? first : second;
    text += nlohmann::json{{"name", "process_name"}, {"pid", process}}.dump() + ",\n";
    for (const int step : {from, from + 1}) {
      text +=
          nlohmann::json{
              {"ph", "X"},      {"name", "update"}, {"cat", "compute"},        {"pid", process},
              {"ts", step * 9}, {"dur", 5},         {"args", {{"step", step}}}}
              .dump() +
          ",\n";
    }
  }
  return text + "{}]}\n";
}

TEST(ReportFiles, KeepsTheMeasuredStepUntilAllProcessesHaveRecordedAnother) {
  std::ifstream stream("tests/launcher/recipe/plan.json");
  const ReportPlan plan = report_plan(plan::plan_from_json(nlohmann::json::parse(stream)), "", {});
  const ScratchDirectory run;
  ReportFiles files;
  auto written = std::filesystem::file_time_type::clock::now();
  const auto page_with = [&](const std::string& trace) {
    ScratchDirectory::write(run / "trace.json", trace);
    std::filesystem::last_write_time(run / "trace.json", written += std::chrono::seconds(1));
    files.write(run.path(), plan);
    return ScratchDirectory::read(run / "report.html");
  };
  EXPECT_THAT(page_with(trace_of(4, 7)), testing::Not(testing::HasSubstr(R"("step":5)")));
  EXPECT_THAT(page_with(trace_of(4, 4)), testing::HasSubstr(R"("step":5)"));
  EXPECT_THAT(page_with(trace_of(8, 4)), testing::HasSubstr(R"("step":5)"));
  EXPECT_THAT(page_with(trace_of(8, 8)), testing::HasSubstr(R"("step":9)"));
}

}  // namespace
}  // namespace strait::cli
