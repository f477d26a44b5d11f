#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include "launcher/run/slow_parts.h"

namespace strait::run {
namespace {

using testing::HasSubstr;
using testing::IsEmpty;

const std::map<net::ProcessName, SlowSteps::Host> kHosts = {
    {{0, 0}, {"a", 2}}, {{1, 0}, {"a", 2}}, {{2, 0}, {"b", 8}}};

// Two stages on host a, one on b; `others` is what other programs use of each host's cores.
StepLine step_of(std::int64_t number, double seconds, double others_a = 0, double others_b = 0) {
  StepLine line;
  line.step = store::Step{number};
  line.seconds = seconds;
  for (const auto& [process, host] : kHosts) {
    trace::StepMetrics metrics;
    metrics.own_cores = 0.5;
    metrics.host_cores = host.name == "a" ? 1.0 + others_a : 0.5 + others_b;
    line.processes.emplace_back(process, metrics);
  }
  return line;
}

// Steps of about `seconds` each. None is named.
SlowSteps after_steps(std::int64_t count, double seconds, std::uint64_t seed) {
  SlowSteps steps(kHosts);
  std::mt19937_64 random(seed);
  std::lognormal_distribution noise(std::log(seconds), 0.3);
  for (std::int64_t i = 1; i <= count; ++i) {
    EXPECT_THAT(steps.add(step_of(i, noise(random))), IsEmpty())
        << "step " << i << " seed " << seed;
  }
  return steps;
}

TEST(SlowSteps, NamesNoStepOfHundredNoisyRuns) {
  for (std::uint64_t seed = 1; seed <= 100; ++seed) after_steps(300, 0.5, seed);
}

TEST(SlowSteps, NamesStepOfTenTimesTheMedianWithTheLoadOfTheBusiestHost) {
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    SlowSteps steps = after_steps(40, 0.5, seed);
    EXPECT_THAT(steps.add(step_of(41, 2.5, 1.0)), IsEmpty()) << "five times, seed " << seed;
    const std::string said = steps.add(step_of(42, 8, 1.0, 0.2));
    EXPECT_THAT(said, HasSubstr("step 42 took 8 s, 1"));
    EXPECT_THAT(said, HasSubstr("; other programs kept 1.0 of the 2 cores of host a busy"));
  }
}

TEST(SlowSteps, NamesTheFirstOfSeveralInARow) {
  SlowSteps steps = after_steps(40, 0.5, 1);
  EXPECT_THAT(steps.add(step_of(41, 9, 0, 6.5)), HasSubstr("6.5 of the 8 cores of host b"));
  EXPECT_THAT(steps.add(step_of(42, 9)), IsEmpty());
  EXPECT_THAT(steps.add(step_of(43, 0.5)), IsEmpty());
  EXPECT_THAT(steps.add(step_of(44, 9)), HasSubstr("step 44"));
}

TEST(SlowSteps, FirstStepsShortOnesAndCheckpointsAreNotNamed) {
  EXPECT_THAT(after_steps(7, 0.5, 1).add(step_of(8, 60)), IsEmpty()) << "no median yet";
  EXPECT_THAT(after_steps(40, 0.01, 1).add(step_of(41, 0.9)), IsEmpty()) << "short";
  StepLine saves = step_of(41, 9);
  saves.checkpoint_seconds = 8;
  EXPECT_THAT(after_steps(40, 0.5, 1).add(saves), IsEmpty());
}

TEST(SlowSteps, SaysNothingOfALoadThatIsNotKnown) {
  SlowSteps steps = after_steps(40, 0.5, 1);
  StepLine line = step_of(41, 9);
  for (auto& [process, metrics] : line.processes) metrics.host_cores.reset();
  EXPECT_THAT(steps.add(line), testing::Not(HasSubstr("other programs")));
}

}  // namespace
}  // namespace strait::run
