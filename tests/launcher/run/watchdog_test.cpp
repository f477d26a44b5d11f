#include "launcher/run/watchdog.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace strait::run {
namespace {

using namespace std::chrono_literals;
using testing::AllOf;
using testing::HasSubstr;
using testing::Not;
using Time = Watchdog::Time;

const net::ProcessName kA{0, 0};
const net::ProcessName kB{1, 0};
const net::ProcessName kC{2, 0};

// A run of three processes with a manual clock.
class WatchdogTest : public testing::Test {
 protected:
  void all_hello() {
    for (const auto& name : {kA, kB, kC}) dog_.heard(name, now_);
  }
  void say(net::ProcessName who, std::uint64_t actions,
           std::optional<net::ProcessName> waits_on = {}, bool path_is_down = false) {
    Progress progress;
    progress.path_is_down = path_is_down;
    progress.phase = "forward";
    progress.micro_batch = 3;
    progress.finished_actions = actions;
    progress.waits_on = waits_on;
    if (waits_on) progress.waits_for = who.describe() + " waits for " + waits_on->describe();
    dog_.progress(who, progress, now_);
  }
  // Where links may reconnect, silence is no loss for two minutes.
  void limits_of_hosts() {
    WatchdogLimits limits;
    limits.hold = 120s;
    dog_ = Watchdog({kA, kB, kC}, limits, now_);
    dog_.restart(now_);
  }
  // Advances the clock as a coordinator does: in small steps, with a judge() after each.
  std::optional<StallDiagnosis> pass(std::chrono::milliseconds time,
                                     const std::function<void()>& every_second = {}) {
    for (auto passed = 0ms; passed < time; passed += 500ms) {
      now_ += 500ms;
      if (every_second) every_second();
      if (auto stall = dog_.judge(now_, median_)) return stall;
    }
    return std::nullopt;
  }

  Time now_{std::chrono::hours(100)};
  double median_ = 1;
  Watchdog dog_{{kA, kB, kC}, {}, now_};
};

TEST_F(WatchdogTest, ReportsMissingProcessAfterStartTimeout) {
  dog_.heard(kA, now_);
  dog_.heard(kC, now_);
  const auto stall = pass(70s, [&] {
    dog_.heard(kA, now_);
    dog_.heard(kC, now_);
  });
  ASSERT_TRUE(stall.has_value());
  EXPECT_EQ(stall->process, kB);
  EXPECT_THAT(stall->sentence, HasSubstr("stage 1.0 did not connect within 60 s"));
}

TEST_F(WatchdogTest, StartTimeoutGrowsWithSlowStarts) {
  EXPECT_FALSE(pass(50s).has_value());
  dog_.heard(kA, now_);
  dog_.heard(kC, now_);
  const auto alive = [&] {
    dog_.heard(kA, now_);
    dog_.heard(kC, now_);
  };
  EXPECT_FALSE(pass(140s, alive).has_value());
  EXPECT_TRUE(pass(20s, alive).has_value());
}

TEST_F(WatchdogTest, ReportsLongestSilentProcessAfterFiveSeconds) {
  all_hello();
  say(kB, 1);
  EXPECT_FALSE(pass(1s, [&] { say(kA, 1), say(kC, 1); }).has_value());
  const auto stall = pass(6s, [&] { say(kA, 1); });
  ASSERT_TRUE(stall.has_value());
  EXPECT_EQ(stall->process, kB);
  EXPECT_TRUE(stall->silent);
  EXPECT_THAT(stall->sentence, HasSubstr("stage 1.0 has sent nothing for 5."));
  EXPECT_THAT(stall->sentence, HasSubstr("forward at step 0"));
}

TEST_F(WatchdogTest, IgnoresSilenceOfFinishedProcess) {
  all_hello();
  dog_.finished(kB);
  EXPECT_FALSE(pass(60s, [&] { say(kA, 1), say(kC, 1); }).has_value());
}

TEST_F(WatchdogTest, DiagnosesEndOfWaitingChain) {
  all_hello();
  say(kA, 0), say(kB, 0), say(kC, 0);
  EXPECT_FALSE(pass(1s, [&] { say(kA, 9, kB), say(kB, 9, kC), say(kC, 9); }).has_value());
  const auto stall = pass(70s, [&] { say(kA, 9, kB), say(kB, 9, kC), say(kC, 9); });
  ASSERT_TRUE(stall.has_value());
  EXPECT_EQ(stall->process, kC);
  EXPECT_FALSE(stall->silent);
  EXPECT_THAT(stall->sentence, HasSubstr("stage 2.0: no progress for 6"));
  EXPECT_THAT(stall->sentence, HasSubstr("forward of micro-batch 3"));
}

TEST_F(WatchdogTest, NoStallWhileEndOfChainProgresses) {
  all_hello();
  std::uint64_t actions = 0;
  say(kA, 0), say(kB, 0), say(kC, 0);
  EXPECT_FALSE(pass(600s, [&] { say(kA, 9, kB), say(kB, 9, kC), say(kC, ++actions); }).has_value());
}

TEST_F(WatchdogTest, LongStepsExtendTimeout) {
  all_hello();
  median_ = 30;
  const auto stuck = [&] { say(kA, 9, kB), say(kB, 9, kC), say(kC, 9); };
  say(kA, 0), say(kB, 0), say(kC, 0);
  EXPECT_FALSE(pass(295s, stuck).has_value());
  EXPECT_TRUE(pass(10s, stuck).has_value());
}

// Received data and bytes of a load count as progress, and say nothing of an action's length.
TEST_F(WatchdogTest, ProgressBeforeTheFirstStepKeepsTheLongerTimeout) {
  all_hello();
  median_ = 0;
  say(kA, 0), say(kB, 0), say(kC, 0);
  const auto waiting = [&] { say(kA, 7, kB), say(kB, 7, kC), say(kC, 7); };
  EXPECT_FALSE(pass(295s, waiting).has_value());
  EXPECT_TRUE(pass(10s, waiting).has_value());
}

TEST_F(WatchdogTest, ForecastOfLongStepsExtendsTimeoutOfTheFirst) {
  WatchdogLimits limits;
  limits.forecast_step_seconds = 1200;
  dog_ = Watchdog({kA, kB, kC}, limits, now_);
  median_ = 0;
  all_hello();
  say(kA, 0), say(kB, 0), say(kC, 0);
  const auto waiting = [&] { say(kA, 7, kB), say(kB, 7, kC), say(kC, 7); };
  EXPECT_FALSE(pass(3h, waiting).has_value());
  EXPECT_TRUE(pass(1h, waiting).has_value());
}

// A save of ten minutes to a slow disk, and one that stands still.
TEST_F(WatchdogTest, SlowSaveIsNoStallWhileBytesMove) {
  all_hello();
  std::uint64_t bytes = 0;
  int second = 0;
  const auto saving = [&] {
    if (second++ % 110 == 0) ++bytes;  // every 55 s
    say(kA, 9, kC), say(kB, 9, kC), say(kC, bytes);
  };
  EXPECT_FALSE(pass(600s, saving).has_value());
  EXPECT_TRUE(pass(130s, [&] { say(kA, 9, kC), say(kB, 9, kC), say(kC, bytes); }).has_value());
}

TEST_F(WatchdogTest, FirstActionHasLongerTimeout) {
  all_hello();
  const auto first = [&] { say(kA, 0, kB), say(kB, 0, kC), say(kC, 0); };
  EXPECT_FALSE(pass(290s, first).has_value());
  EXPECT_TRUE(pass(30s, first).has_value());
}

TEST_F(WatchdogTest, ReportsWaitingCycle) {
  all_hello();
  say(kA, 0), say(kB, 0), say(kC, 0);
  const auto circle = [&] { say(kA, 9, kB), say(kB, 9, kC), say(kC, 9, kB); };
  const auto stall = pass(80s, circle);
  ASSERT_TRUE(stall.has_value());
  EXPECT_THAT(stall->sentence, HasSubstr("wait in a cycle"));
  EXPECT_THAT(stall->sentence, HasSubstr("stage 1.0 waits for stage 2.0 waits for stage 1.0"));
}

TEST_F(WatchdogTest, ChainEndsAtAPathThatIsDownAndAtASilentProcess) {
  limits_of_hosts();
  all_hello();
  // Stage 0 has nothing to do, and waits for the decision of stage 2.
  const auto circle = [&](bool down) { say(kA, 1, kC), say(kB, 1, kA, down), say(kC, 1, kB); };
  EXPECT_FALSE(pass(12s, [&] { circle(true); }).has_value());
  auto still = dog_.standstill(now_, median_);
  ASSERT_TRUE(still.has_value());
  EXPECT_EQ(still->process, kB);
  EXPECT_THAT(still->sentence, Not(HasSubstr("cycle")));
  circle(false);
  EXPECT_THAT(dog_.standstill(now_, median_)->sentence, HasSubstr("cycle"));
  // Stage 0 is heard no more.
  EXPECT_FALSE(pass(12s, [&] { say(kB, 1, kA, true), say(kC, 1, kB); }).has_value());
  still = dog_.standstill(now_, median_);
  ASSERT_TRUE(still.has_value());
  EXPECT_EQ(still->process, kA);
  EXPECT_THAT(still->sentence,
              AllOf(HasSubstr("it has sent nothing for"), Not(HasSubstr("cycle"))));
}

// A link gives up a few seconds after `hold`; the process that waits over it then reports the path.
TEST_F(WatchdogTest, StandstillIsNamedBeforeItIsAStall) {
  dog_.restart(now_);
  all_hello();
  say(kA, 1), say(kB, 1), say(kC, 1);
  const auto waiting = [&] { say(kA, 2, kB), say(kB, 2, kC), say(kC, 2); };
  EXPECT_FALSE(pass(10s, waiting).has_value());
  EXPECT_FALSE(dog_.standstill(now_, median_).has_value());
  EXPECT_FALSE(pass(2s, waiting).has_value());
  const auto still = dog_.standstill(now_, median_);
  ASSERT_TRUE(still.has_value());
  EXPECT_EQ(still->process, kC);
  EXPECT_THAT(still->sentence, HasSubstr("stage 0.0 waits for stage 1.0 waits for stage 2.0"));
  EXPECT_FALSE(dog_.standstill(now_, 20).has_value()) << "a step takes longer";
  EXPECT_EQ(dog_.standstill_change(now_, median_), still->sentence);
  EXPECT_EQ(dog_.standstill_change(now_, median_), std::nullopt);
  say(kC, 3);
  EXPECT_EQ(dog_.standstill_change(now_, median_), "");
  EXPECT_EQ(dog_.standstill_change(now_, median_), std::nullopt);
  EXPECT_FALSE(dog_.standstill(now_, median_).has_value()) << "it moves again";
}

TEST_F(WatchdogTest, StandstillOfASilentProcessSaysSo) {
  limits_of_hosts();
  all_hello();
  say(kA, 1), say(kB, 1);
  EXPECT_FALSE(pass(12s, [&] { say(kA, 1, kB); }).has_value());
  EXPECT_FALSE(dog_.standstill(now_, median_).has_value()) << "one has never reported";
  say(kC, 1, kB);
  EXPECT_FALSE(pass(12s, [&] { say(kA, 1, kB), say(kC, 1, kB); }).has_value());
  const auto still = dog_.standstill(now_, median_);
  ASSERT_TRUE(still.has_value());
  EXPECT_EQ(still->process, kB);
  EXPECT_THAT(still->sentence, HasSubstr("it has sent nothing for 24 s"));
}

TEST_F(WatchdogTest, WaitsForLinkReportsWherePathsMayBreak) {
  WatchdogLimits limits;
  limits.hold = 120s;
  dog_ = Watchdog({kA, kB, kC}, limits, now_);
  all_hello();
  dog_.restart(now_);
  say(kA, 0), say(kB, 0), say(kC, 0);
  say(kA, 9), say(kB, 9), say(kC, 9);
  const auto circle = [&] { say(kA, 9, kB), say(kB, 9, kC), say(kC, 9, kA); };
  EXPECT_FALSE(pass(128s, circle).has_value());
  EXPECT_TRUE(pass(10s, circle).has_value());
}

TEST_F(WatchdogTest, IgnoresPauseOfLauncherItself) {
  all_hello();
  say(kA, 1), say(kB, 1), say(kC, 1);
  EXPECT_FALSE(dog_.judge(now_, 0).has_value());
  now_ += 1h;  // Ctrl-Z, then fg
  EXPECT_FALSE(dog_.judge(now_, 0).has_value());
  EXPECT_TRUE(pass(6s).has_value());
}

TEST_F(WatchdogTest, ProcessStartedLaterHasOwnStartTimeout) {
  all_hello();
  const auto say_all = [&] {
    for (const auto& name : {kA, kB}) dog_.heard(name, now_);
  };
  dog_.finished(kC);
  EXPECT_FALSE(pass(300s, say_all).has_value());
  dog_.begin(kC, now_);
  EXPECT_FALSE(pass(50s, say_all).has_value());
  const auto stall = pass(20s, say_all);
  ASSERT_TRUE(stall.has_value());
  EXPECT_EQ(stall->process, kC);
  EXPECT_THAT(stall->sentence, HasSubstr("did not connect within 60 s"));
}

}  // namespace
}  // namespace strait::run
