
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "framework/store/checkpoint.h"
#include "framework/store/store_error.h"
#include "launcher/base/errors.h"
#include "launcher/run/run_directory.h"
#include "tests/scratch_directory.h"

namespace strait::run {
namespace {

namespace fs = std::filesystem;
using store::Step;
using testing::UnorderedElementsAre;

const std::string kThreeSteps = "{\"step\":1}\n{\"step\":2}\n{\"step\":3}\n";

// A run with the checkpoints 1, 2 and 3, which is to go on from 1 with another plan and recipe.
class ResumeChangesTest : public testing::Test {
 protected:
  ResumeChangesTest() {
    const RunDirectory run = RunDirectory::create(path_, RunDirectory::Existing::refuse);
    ScratchDirectory::write(run.plan(), "old plan");
    ScratchDirectory::write(run.recipe(), "old recipe");
    ScratchDirectory::write(run.metrics(), kThreeSteps + "{\"st");
    for (const std::int64_t step : {1, 2, 3}) {
      store::Manifest manifest;
      manifest.step = Step{step};
      store::commit_checkpoint(store::checkpoint_directory(path_, Step{step}), manifest);
    }
  }

  void expect_changed() {
    EXPECT_EQ(ScratchDirectory::read(path_ / "plan.json"), "new plan");
    EXPECT_EQ(ScratchDirectory::read(path_ / "recipe.toml"), "new recipe");
    EXPECT_EQ(ScratchDirectory::read(path_ / "metrics.jsonl"), "{\"step\":1}\n");
    EXPECT_THAT(names(path_ / "checkpoints"),
                UnorderedElementsAre("step-1", "step-2.aside-1", "step-3.aside-1"));
    EXPECT_THAT(names(path_), UnorderedElementsAre("plan.json", "recipe.toml", "metrics.jsonl",
                                                   "checkpoints", "logs", "lock"));
  }
  void expect_unchanged_but_for_the_checkpoints() {
    EXPECT_EQ(ScratchDirectory::read(path_ / "plan.json"), "old plan");
    EXPECT_EQ(ScratchDirectory::read(path_ / "metrics.jsonl"), kThreeSteps + "{\"st");
  }
  static std::vector<std::string> names(const fs::path& folder) {
    std::vector<std::string> all;
    for (const auto& entry : fs::directory_iterator(folder)) all.push_back(entry.path().filename());
    return all;
  }

  ScratchDirectory scratch_;
  fs::path path_ = scratch_ / "dates";
  const ResumeChanges changes_{Step{1}, "new plan", "new recipe"};
};

TEST_F(ResumeChangesTest, ChangeAllFilesAndLeaveNone) {
  apply_changes(RunDirectory::open(path_), changes_);
  expect_changed();
}

TEST_F(ResumeChangesTest, KeepWhatIsAbsent) {
  apply_changes(RunDirectory::open(path_), {});
  expect_unchanged_but_for_the_checkpoints();
  EXPECT_EQ(names(path_ / "checkpoints").size(), 3U);
}

// A directory in the place of the file that is replaced ends the change there, as death would.
TEST_F(ResumeChangesTest, AreCompletedByTheNextOpenFromWhereverTheyStopped) {
  const fs::path before = path_;
  for (const char* obstacle : {"metrics.jsonl", "recipe.toml", "plan.json"}) {
    SCOPED_TRACE(obstacle);
    const fs::path run = scratch_ / (std::string("stopped at ") + obstacle);
    fs::copy(before, run, fs::copy_options::recursive);
    const fs::path file = run / obstacle;
    fs::rename(file, scratch_ / "saved");
    fs::create_directory(file);
    EXPECT_THROW(apply_changes(RunDirectory::open(run), changes_), store::StoreError);
    EXPECT_TRUE(fs::exists(run / "resume.journal.json"));
    fs::remove(file);
    fs::rename(scratch_ / "saved", file);
    path_ = run;
    RunDirectory::open(run);
    expect_changed();
    RunDirectory::open(run);
    expect_changed();
  }
}

TEST_F(ResumeChangesTest, MetricsThatCannotBeReadAreNotCut) {
  const RunDirectory run = RunDirectory::open(path_);
  fs::rename(run.metrics(), scratch_ / "saved");
  fs::create_symlink("metrics.jsonl", run.metrics());
  EXPECT_THROW(apply_changes(run, changes_), store::StoreError);
  fs::remove(run.metrics());
  fs::rename(scratch_ / "saved", run.metrics());
  EXPECT_EQ(ScratchDirectory::read(run.metrics()), kThreeSteps + "{\"st");
}

TEST_F(ResumeChangesTest, OfAnotherBuildAreRefused) {
  ScratchDirectory::write(path_ / "resume.journal.json", "{\"from\": 1, \"more\": 2}");
  EXPECT_THROW(RunDirectory::open(path_), base::UserError);
  expect_unchanged_but_for_the_checkpoints();
}

}  // namespace
}  // namespace strait::run
