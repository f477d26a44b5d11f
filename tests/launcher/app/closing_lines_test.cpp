#include "launcher/app/closing_lines.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "framework/store/checkpoint.h"
#include "tests/scratch_directory.h"

namespace strait::app {
namespace {

using testing::ElementsAre;
using testing::EndsWith;
using testing::HasSubstr;

class ClosingLines : public testing::Test {
 protected:
  ClosingLines() {
    for (const std::int64_t step : {10, 12}) {
      const auto path = store::checkpoint_directory(scratch_.path(), store::Step{step});
      std::filesystem::create_directories(path);
      ScratchDirectory::write(path / store::kManifestName, "{}");
    }
    outcome_.code = base::ExitCode::mismatch;
  }
  std::vector<std::string> lines(const std::string& asked) {
    return closing_lines(scratch_.path(), plan::Plan(), outcome_, asked);
  }

  ScratchDirectory scratch_;
  control::Outcome outcome_;
};

TEST_F(ClosingLines, RepeatWhatAResumeWasAskedForUntilItIsApplied) {
  EXPECT_THAT(lines(" --set train.steps=16"),
              ElementsAre(EndsWith(" --set train.steps=16   (from step 12)")));
  EXPECT_THAT(lines(" --from 10"), ElementsAre(EndsWith(" --from 10")));
  outcome_.trained = true;
  EXPECT_THAT(lines(" --from 10 --set train.steps=16"),
              ElementsAre(EndsWith(scratch_.path().string() + "   (from step 12)")));
}

TEST_F(ClosingLines, AreWordsThatAShellReads) {
  RunOptions options;
  options.from = 10;
  options.overrides = {"train.steps=16", R"(hosts.list=["b", "c"])"};
  options.without = {1};
  EXPECT_EQ(as_words(options),
            R"( --from 10 --set train.steps=16 --set 'hosts.list=["b", "c"]' --without 1)");
  EXPECT_EQ(as_words({}), "");
  outcome_.code = base::ExitCode::done;
  for (const std::string& line : closing_lines("runs/a #1", plan::Plan(), outcome_, "")) {
    if (line.starts_with("results")) continue;
    EXPECT_THAT(line, HasSubstr(" 'runs/a #1'"));
  }
}

TEST_F(ClosingLines, MemoryIsThatOfTheProcessItselfWithoutItsProgram) {
  ScratchDirectory::write(scratch_ / "metrics.jsonl",
                          R"({"step":1,"memory_bytes":{"0.0":150000000},)"
                          R"("program_bytes":{"0.0":120000000},"gpu_memory_bytes":{"0.0":0}})"
                          "\n");
  plan::Plan plan;
  plan.recipe.checkpoint.every = 0;  // no copies of what is saved
  plan.hosts.emplace_back().name = "here";
  plan::Plan::Process& process = plan.processes.emplace_back();
  process.name = {0, 0};
  process.state_bytes = 28'000'000;
  outcome_.code = base::ExitCode::done;
  EXPECT_THAT(closing_lines(scratch_.path(), plan, outcome_, ""),
              testing::Contains("memory    0.0 30.0 MB of 28.0 MB planned (each process also has "
                                "120.0 MB of program and libraries)"));
}

}  // namespace
}  // namespace strait::app
