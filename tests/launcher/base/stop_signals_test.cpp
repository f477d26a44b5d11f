#include "launcher/base/stop_signals.h"

#include <gtest/gtest.h>

#include <csignal>
#include <cstdlib>

#include "launcher/base/errors.h"

namespace strait::base {
namespace {

TEST(StopSignals, CountsInterruptsAndIgnoresClosedTerminal) {
  const StopSignals signals;
  EXPECT_EQ(signals.count().load(), 0);
  std::raise(SIGINT);
  EXPECT_EQ(signals.count().load(), 1);
  std::raise(SIGTERM);
  EXPECT_EQ(signals.count().load(), 2);
  std::raise(SIGHUP);
  std::raise(SIGPIPE);
  std::raise(SIGXFSZ);
  EXPECT_EQ(signals.count().load(), 2);
}

TEST(StopSignals, TellsARequestForTheEndFromASignalOfAScheduler) {
  {
    const StopSignals signals;
    std::raise(SIGTERM);
    std::raise(kAskSignal);
    EXPECT_FALSE(StopSignals::asked());
  }
  const StopSignals signals;
  std::raise(kAskSignal);
  EXPECT_TRUE(StopSignals::asked());
}

TEST(StopSignals, AskSignalIsNeverTheSecondRequest) {
  const StopSignals signals;
  EXPECT_FALSE(StopSignals::asked());
  std::raise(kAskSignal);
  std::raise(kAskSignal);
  EXPECT_EQ(signals.count().load(), 1);
  std::raise(SIGINT);
  EXPECT_EQ(signals.count().load(), 2);
  std::raise(kAskSignal);
  EXPECT_EQ(signals.count().load(), 2);
}

TEST(StopSignals, InnerOneGoesOnCounting) {
  const StopSignals outer;
  std::raise(SIGINT);
  {
    const StopSignals inner;
    EXPECT_EQ(inner.count().load(), 1);
    std::raise(SIGTERM);
  }
  std::raise(SIGINT);  // still handled
  EXPECT_EQ(outer.count().load(), 3);
}

TEST(StopSignals, DestructorRestoresSignals) {
  { const StopSignals signals; }
  EXPECT_EXIT(std::raise(SIGTERM), testing::KilledBySignal(SIGTERM), "");
}

// In processes of their own, which die by the signal: scripts that called them end, too.
TEST(StopSignalsDeathTest, AnnouncedStopIsNotSilent) {
  using Stopped = testing::KilledBySignal;
  const auto announce = [] { StopSignals::announce("interrupted early\n"); };
  EXPECT_EXIT((announce(), std::raise(SIGINT)), Stopped(SIGINT), "^interrupted early\n$");
  const auto after_a_launch = [&] {
    announce();
    { const StopSignals signals; }
    std::raise(SIGTERM);
  };
  EXPECT_EXIT(after_a_launch(), Stopped(SIGTERM), "^interrupted early\n$");
  const auto held = [&] {
    StopSignals::hold();
    std::raise(SIGINT);
    announce();
  };
  EXPECT_EXIT(held(), Stopped(SIGINT), "^interrupted early\n$");
  // Of `strait stop`: no signal of a user that a script ends by.
  const testing::ExitedWithCode asked(number(ExitCode::interrupted));
  EXPECT_EXIT((announce(), std::raise(kAskSignal)), asked, "^interrupted early\n$");
  const auto asked_after_a_launch = [&] {
    announce();
    { const StopSignals signals; }
    std::raise(kAskSignal);
  };
  EXPECT_EXIT(asked_after_a_launch(), asked, "^interrupted early\n$");
  const auto asked_while_held = [&] {
    StopSignals::hold();
    std::raise(kAskSignal);
    announce();
  };
  EXPECT_EXIT(asked_while_held(), asked, "^interrupted early\n$");
  const auto ignored = [&] {
    std::signal(SIGINT, SIG_IGN);
    announce();
    std::raise(SIGINT);
    std::raise(SIGTERM);
  };
  EXPECT_EXIT(ignored(), Stopped(SIGTERM), "^interrupted early\n$");
  const auto counted = [&] {
    const StopSignals signals;
    announce();
    std::raise(SIGINT);
    std::_Exit(signals.count());
  };
  EXPECT_EXIT(counted(), testing::ExitedWithCode(1), "^$");
}

}  // namespace
}  // namespace strait::base
