#include "launcher/run/run_directory.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mount.h>
#include <unistd.h>

#include <cstdlib>
#include <fstream>

#include "launcher/base/errors.h"
#include "launcher/base/process_identity.h"
#include "tests/child_process.h"
#include "tests/refusal_of.h"
#include "tests/saved_checkpoint.h"
#include "tests/scratch_directory.h"

namespace strait::run {
namespace {

using testing::HasSubstr;
using Existing = RunDirectory::Existing;

// Another process that owns a run until it is killed.
class Owner : public ChildProcess {
 public:
  explicit Owner(const std::filesystem::path& run)
      : ChildProcess([&](int ready) {
          const RunDirectory directory = RunDirectory::open(run);
          report_ready(ready);
          while (true) ::pause();
        }) {}
};

class RunDirectoryTest : public testing::Test {
 protected:
  // A former run whose launcher has ended.
  void past_run() {
    const RunDirectory directory = RunDirectory::create(run_, Existing::refuse);
    ScratchDirectory::write(directory.plan(), "{}");
    ScratchDirectory::write(directory.metrics(), "{\"step\":1}\n");
  }
  ScratchDirectory scratch_;
  std::filesystem::path run_ = scratch_ / "dates";
};

TEST_F(RunDirectoryTest, NewRunHasItsFolders) {
  const RunDirectory directory = RunDirectory::create(run_.string() + "/", Existing::refuse);
  EXPECT_EQ(directory.path(), run_);
  EXPECT_TRUE(std::filesystem::is_directory(run_ / "logs"));
  EXPECT_TRUE(std::filesystem::is_directory(directory.checkpoints()));
  EXPECT_EQ(directory.log("1.0"), run_ / "logs" / "1.0.log");
  EXPECT_FALSE(directory.moved_aside().has_value());
}

TEST_F(RunDirectoryTest, NeverOverwritesExistingRun) {
  past_run();
  store::save_checkpoint(run_, 1, {store::shard_name(0, 0)});
  const std::string text =
      refusal_of<base::UserError>([&] { RunDirectory::create(run_, Existing::refuse); });
  EXPECT_THAT(text, HasSubstr("already holds a run"));
  EXPECT_THAT(text, HasSubstr("strait resume"));
  EXPECT_THAT(text, HasSubstr("--set name=dates-2;"));
  EXPECT_THAT(text, HasSubstr("--replace"));
  EXPECT_EQ(ScratchDirectory::read(run_ / "metrics.jsonl"), "{\"step\":1}\n");
}

TEST_F(RunDirectoryTest, RefusalAdvisesNoResumeOfRunWithoutCheckpoint) {
  past_run();
  std::filesystem::create_directory(scratch_ / "dates-2");
  const std::string text =
      refusal_of<base::UserError>([&] { RunDirectory::create(run_, Existing::refuse); });
  EXPECT_THAT(text, HasSubstr("has no checkpoint to resume from"));
  EXPECT_THAT(text, testing::Not(HasSubstr("strait resume")));
  EXPECT_THAT(text, HasSubstr("--set name=dates-3"));
}

TEST_F(RunDirectoryTest, StartThatFailedBeforeFirstStepCanBeRepeated) {
  ScratchDirectory::write(RunDirectory::create(run_, Existing::refuse).plan(), "{}");
  const RunDirectory second = RunDirectory::create(run_, Existing::refuse);
  EXPECT_EQ(second.moved_aside(), scratch_ / "dates.old-1");
  EXPECT_FALSE(std::filesystem::exists(second.plan()));
}

TEST_F(RunDirectoryTest, ReplaceRenamesAndDeletesNothing) {
  past_run();
  const RunDirectory second = RunDirectory::create(run_, Existing::move_aside);
  EXPECT_EQ(second.moved_aside(), scratch_ / "dates.old-1");
  EXPECT_EQ(ScratchDirectory::read(scratch_ / "dates.old-1" / "metrics.jsonl"), "{\"step\":1}\n");
  EXPECT_FALSE(std::filesystem::exists(second.metrics()));
  ScratchDirectory::write(second.plan(), "{}");
}

TEST_F(RunDirectoryTest, ReplacedRunGetsItsNameBackWhereTheNewOneIsDiscarded) {
  past_run();
  RunDirectory::create(run_, Existing::move_aside).discard();
  EXPECT_EQ(ScratchDirectory::read(run_ / "metrics.jsonl"), "{\"step\":1}\n");
  EXPECT_FALSE(std::filesystem::exists(scratch_ / "dates.old-1"));
}

TEST_F(RunDirectoryTest, ReplacedRunGetsItsNameBackWhereTheDiskIsFull) {
  const std::filesystem::path disk = scratch_ / "disk";
  std::filesystem::create_directory(disk);
  if (::mount("tmpfs", disk.c_str(), "tmpfs", 0, "nr_inodes=20") != 0) {
    GTEST_SKIP() << "needs root, which may mount a small disk";
  }
  // With room for nothing, for a folder, for its lock, ...
  for (const int left : {0, 1, 2, 3}) {
    run_ = disk / std::to_string(left);
    past_run();
    std::vector<std::filesystem::path> files;
    do {
      files.push_back(disk / fmt::format("file-{}", files.size()));
    } while (std::ofstream(files.back()).is_open());
    files.pop_back();
    for (int i = 0; i < left; ++i) {
      std::filesystem::remove(files.back());
      files.pop_back();
    }
    EXPECT_ANY_THROW(RunDirectory::create(run_, Existing::move_aside)) << left;
    EXPECT_TRUE(std::filesystem::exists(run_ / "metrics.jsonl")) << left;
    for (const auto& file : files) std::filesystem::remove(file);
    std::filesystem::remove_all(run_);
  }
  EXPECT_EQ(::umount(disk.c_str()), 0);
}

TEST_F(RunDirectoryTest, EveryReplacedRunGetsItsOwnName) {
  past_run();
  ScratchDirectory::write(RunDirectory::create(run_, Existing::move_aside).plan(), "{}");
  EXPECT_EQ(RunDirectory::create(run_, Existing::move_aside).moved_aside(),
            scratch_ / "dates.old-2");
}

TEST_F(RunDirectoryTest, RefusesLiveRunWithPidAndStartTime) {
  past_run();
  const Owner owner(run_);
  for (const auto& attempt : std::vector<std::function<void()>>{
           [&] { RunDirectory::open(run_); }, [&] { RunDirectory::create(run_, Existing::refuse); },
           [&] { RunDirectory::create(run_, Existing::move_aside); }}) {
    const std::string text = refusal_of<base::UserError>(attempt);
    EXPECT_THAT(text, HasSubstr("live run (process " + std::to_string(owner.pid())));
    EXPECT_THAT(text, HasSubstr("since 20"));
  }
  EXPECT_EQ(ScratchDirectory::read(run_ / "metrics.jsonl"), "{\"step\":1}\n");
  const auto live = RunDirectory::live(run_);
  ASSERT_TRUE(live.has_value());
  EXPECT_EQ(live->pid, owner.pid());
}

TEST_F(RunDirectoryTest, TakesOverLockOfDeadLauncher) {
  past_run();
  Owner owner(run_);
  owner.kill();
  EXPECT_FALSE(RunDirectory::live(run_).has_value());
  const RunDirectory ours = RunDirectory::open(run_);
  EXPECT_EQ(RunDirectory::live(run_)->pid, ::getpid());
}

TEST_F(RunDirectoryTest, ReusedPidIsNotOwner) {
  past_run();
  const base::ProcessIdentity own = base::ProcessIdentity::own();
  ScratchDirectory::write(
      run_ / "lock",
      fmt::format(
          R"({{"pid":1,"started":1,"since":"2020-01-01 00:00:00","host":"{}","boot":"{}"}})",
          own.host, own.boot));
  EXPECT_FALSE(RunDirectory::live(run_).has_value());
  EXPECT_EQ(refusal_of<base::UserError>([&] { RunDirectory::open(run_); }), "nothing was refused");
}

TEST_F(RunDirectoryTest, DoesNotTakeOverLockOfOtherHost) {
  past_run();
  ScratchDirectory::write(run_ / "lock", R"({"pid":1,"started":1,"since":"2020-01-01 00:00:00",
                                             "host":"far","boot":"another","job":"12"})");
  const std::string text = refusal_of<base::UserError>([&] { RunDirectory::open(run_); });
  EXPECT_THAT(text, HasSubstr("process 1 of host far in Slurm job 12, since 2020"));
  EXPECT_THAT(text, HasSubstr("if it did, remove " + (run_ / "lock").string()));
  const auto live = RunDirectory::live(run_);
  ASSERT_TRUE(live.has_value());
  EXPECT_FALSE(live->here());
}

TEST_F(RunDirectoryTest, TakesOverLockFromBeforeReboot) {
  past_run();
  std::array<char, 256> name{};
  ASSERT_EQ(::gethostname(name.data(), name.size() - 1), 0);
  ScratchDirectory::write(run_ / "lock",
                          R"({"pid":1,"started":1,"since":"2020-01-01 00:00:00","host":")" +
                              std::string(name.data()) + R"(","boot":"an earlier one"})");
  EXPECT_FALSE(RunDirectory::live(run_).has_value());
  EXPECT_EQ(refusal_of<base::UserError>([&] { RunDirectory::open(run_); }), "nothing was refused");
}

TEST_F(RunDirectoryTest, RequeuedJobTakesOverItsOwnLock) {
  past_run();
  const std::string foreign = R"({"pid":1,"started":1,"since":"2020-01-01 00:00:00",
                                  "host":"far","boot":"another","job":"12"})";
  ASSERT_EQ(::setenv("SLURM_JOB_ID", "12", 1), 0);
  ScratchDirectory::write(run_ / "lock", foreign);
  const std::string same = refusal_of<base::UserError>([&] { RunDirectory::open(run_); });
  ASSERT_EQ(::setenv("SLURM_JOB_ID", "13", 1), 0);
  ScratchDirectory::write(run_ / "lock", foreign);
  const std::string other = refusal_of<base::UserError>([&] { RunDirectory::open(run_); });
  ::unsetenv("SLURM_JOB_ID");
  EXPECT_EQ(same, "nothing was refused");
  EXPECT_THAT(other, HasSubstr("host far"));
}

TEST_F(RunDirectoryTest, IgnoresLockThatIsNotJson) {
  past_run();
  for (const char* rubbish : {"", "x", "[]", "{}", R"({"pid":"x","started":0,"since":0})"}) {
    ScratchDirectory::write(run_ / "lock", rubbish);
    EXPECT_FALSE(RunDirectory::live(run_).has_value()) << rubbish;
    EXPECT_EQ(refusal_of<base::UserError>([&] { RunDirectory::open(run_); }), "nothing was refused")
        << rubbish;
  }
}

TEST_F(RunDirectoryTest, GenerationsRiseAcrossOwners) {
  past_run();
  EXPECT_EQ(RunDirectory::open(run_).next_generation(), 1U);
  RunDirectory again = RunDirectory::open(run_);
  EXPECT_EQ(again.next_generation(), 2U);
  EXPECT_EQ(again.next_generation(), 3U);
}

TEST_F(RunDirectoryTest, RefusesDamagedGeneration) {
  past_run();
  RunDirectory directory = RunDirectory::open(run_);
  ScratchDirectory::write(run_ / "generation", "x");
  EXPECT_THAT(refusal_of<base::UserError>([&] { directory.next_generation(); }),
              HasSubstr("must never decrease"));
}

TEST_F(RunDirectoryTest, RefusesToOpenDirectoryWithoutRun) {
  EXPECT_THAT(refusal_of<base::UserError>([&] { RunDirectory::open(run_); }),
              HasSubstr("holds no run"));
  ScratchDirectory::write(run_, "a file");
  EXPECT_THAT(refusal_of<base::UserError>([&] { RunDirectory::create(run_, Existing::refuse); }),
              HasSubstr("not a directory"));
}

}  // namespace
}  // namespace strait::run
