#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/wait.h>

#include "launcher/base/errors.h"
#include "launcher/base/stop_signals.h"
#include "launcher/cli/verbs.h"
#include "launcher/run/run_directory.h"
#include "tests/child_process.h"
#include "tests/saved_checkpoint.h"
#include "tests/scratch_directory.h"

namespace strait::cli {
namespace {

using namespace std::chrono_literals;
using testing::HasSubstr;

// A launcher in a process of its own: owns the run until it was asked `stops` times to leave.
class OtherLauncher : public ChildProcess {
 public:
  OtherLauncher(const std::filesystem::path& run, int stops)
      : ChildProcess([&](int ready) {
          const base::StopSignals signals;
          const run::RunDirectory directory =
              run::RunDirectory::create(run, run::RunDirectory::Existing::refuse);
          report_ready(ready);
          while (signals.count() < stops) ::poll(nullptr, 0, 5);
        }) {}
};

class VerbStopTest : public testing::Test {
 protected:
  std::string stop(bool now, std::chrono::seconds timeout = 20s) {
    testing::internal::CaptureStdout();
    std::string refusal;
    try {
      EXPECT_EQ(stop_run(run_, now, timeout), base::ExitCode::done);
    } catch (const base::UserError& error) {
      refusal = error.what();
    }
    return testing::internal::GetCapturedStdout() + refusal;
  }
  ScratchDirectory scratch_;
  std::filesystem::path run_ = scratch_ / "dates";
};

TEST_F(VerbStopTest, SendsOneRequestAndWaits) {
  const OtherLauncher other(run_, 1);
  const std::string said = stop(false);
  EXPECT_THAT(said, HasSubstr("requested process " + std::to_string(other.pid()) + " to finish"));
  EXPECT_THAT(said, HasSubstr("it has no checkpoint yet"));
  EXPECT_FALSE(run::RunDirectory::live(run_).has_value());
}

TEST_F(VerbStopTest, SecondOneAsksForNoMoreThanTheFirst) {
  const OtherLauncher other(run_, 2);
  EXPECT_THAT(stop(false, 1s), HasSubstr("is still live after 1 s"));
  EXPECT_THAT(stop(false, 1s), HasSubstr("is still live after 1 s"));
}

TEST_F(VerbStopTest, NamesNewestCheckpointWhosePartsAreOnHosts) {
  const OtherLauncher other(run_, 1);
  const std::string shard = store::shard_name(0, 0);
  store::save_checkpoint(run_, 10, {shard});
  const std::filesystem::path newest = store::save_checkpoint(run_, 20, {shard});
  std::filesystem::remove(newest / shard);
  EXPECT_THAT(stop(false), HasSubstr("the newest checkpoint is " + newest.string() + "\n"));
}

TEST_F(VerbStopTest, NowCountsAsTwoRequests) {
  const OtherLauncher other(run_, 2);
  EXPECT_THAT(stop(true), HasSubstr("to exit at once"));
  EXPECT_FALSE(run::RunDirectory::live(run_).has_value());
}

TEST_F(VerbStopTest, ReportsTimeout) {
  const OtherLauncher other(run_, 1000);
  EXPECT_THAT(stop(false, 0s), HasSubstr("is still live after 0 s"));
}

TEST_F(VerbStopTest, TimeoutOfNowAdvisesAHarderCommandThanItself) {
  const OtherLauncher other(run_, 1000);
  const std::string said = stop(true, 0s);
  EXPECT_THAT(said, HasSubstr("end it at once: kill -KILL " + std::to_string(other.pid())));
  EXPECT_THAT(said, testing::Not(HasSubstr("stop --now")));
}

TEST_F(VerbStopTest, SaysThatTheLauncherIsSuspended) {
  const OtherLauncher other(run_, 2);
  ::kill(other.pid(), SIGSTOP);
  ::waitid(P_PID, static_cast<id_t>(other.pid()), nullptr, WSTOPPED | WNOWAIT);
  EXPECT_THAT(stop(true), HasSubstr("let it go on: kill -CONT " + std::to_string(other.pid())));
}

TEST_F(VerbStopTest, RefusesRunWithoutLiveLauncher) {
  EXPECT_THAT(stop(false), HasSubstr("holds no run"));
  {
    const run::RunDirectory past =
        run::RunDirectory::create(run_, run::RunDirectory::Existing::refuse);
    ScratchDirectory::write(past.plan(), "{}");
  }
  EXPECT_THAT(stop(false), HasSubstr("no run is live in"));
}

}  // namespace
}  // namespace strait::cli
