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
  const plan::Plan plan = plan::plan_from_json(nlohmann::json::parse(stream));
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

}  // namespace
}  // namespace strait::cli
