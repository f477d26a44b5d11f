#include "launcher/run/forecast_check.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace strait::run {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;
using Kind = plan::StepPart::Kind;

// Two stages: 1 s and 2 s of compute, 0.1 s of update, a link of 0.5 s (1 s in the first epoch of
// ten steps). A step takes 4 s, and 4.5 s in the first epoch.
class ForecastCheckTest : public testing::Test {
 protected:
  ForecastCheckTest() {
    plan_.epoch_steps = 10;
    plan_.parts = {
        {Kind::step, {}, "a step", {}, 4, 4.5},
        {Kind::compute, upper_, "compute of stage 0.0", {}, 1, 1},
        {Kind::update, upper_, "update of stage 0.0", {}, 0.1, 0.1},
        {Kind::encode, upper_, "encode of stage 0.0", {}, 0.2, 0.2},
        {Kind::decode, lower_, "decode of stage 1.0", {}, 0.2, 0.2},
        {Kind::compute, lower_, "compute of stage 1.0", {}, 2, 2, /*assumed=*/true},
        {Kind::update, lower_, "update of stage 1.0", {}, 0.1, 0.1},
        {Kind::link, upper_, "boundary 0.0>1.0 from stage 0.0", "boundary 0.0>1.0", 0.5, 1},
        {Kind::wait, {}, "waiting of the busiest process", {}, 1.9, 2.4}};
  }

  // Steps from `first` on; returns what the check says.
  std::vector<std::string> run(ForecastCheck& check, std::int64_t first, int steps,
                               double longer = 0) const {
    std::vector<std::string> sentences;
    for (int i = 0; i < steps; ++i) {
      StepLine line;
      line.step = store::Step{first + i};
      line.seconds = step_ + longer;
      line.processes = {{upper_, {}}, {lower_, {}}};
      line.processes[0].second.busy_seconds = upper_busy_;
      line.processes[1].second.busy_seconds = lower_busy_;
      for (auto& [name, metrics] : line.processes) metrics.update_seconds = 0.1;
      line.processes[0].second.encode_seconds = encode_;
      line.processes[1].second.decode_seconds = 0.2;
      StepLine::LinkBytes link;
      link.name = "boundary 0.0>1.0";
      link.sender = upper_;
      link.sent_bytes = 1000;
      link.bytes_per_second = 1000 / link_;
      line.links = {link};
      line.sync = {{"0.0", 0, 0, 0, 0, round_}};
      std::string sentence = check.add(line);
      if (!sentence.empty()) sentences.push_back(std::move(sentence));
    }
    return sentences;
  }

  // What it says of these steps, once.
  std::string sentence(int steps = 20) const {
    ForecastCheck check(plan_);
    const std::vector<std::string> said = run(check, 11, steps);
    EXPECT_EQ(said.size(), 1U);
    return said.empty() ? "" : said[0];
  }

  net::ProcessName upper_{0, 0};
  net::ProcessName lower_{1, 0};
  plan::Plan plan_;
  double step_ = 4;
  double upper_busy_ = 1.1;
  double lower_busy_ = 2.1;
  double link_ = 0.5;
  double encode_ = 0.2;
  double round_ = 0;
};

TEST_F(ForecastCheckTest, StepWithinAQuarterOfItsForecastIsNoEvent) {
  for (const double seconds : {3.1, 4.0, 4.9}) {
    ForecastCheck check(plan_);
    step_ = seconds;
    EXPECT_TRUE(run(check, 11, 50).empty()) << seconds;
  }
}

TEST_F(ForecastCheckTest, SlowLinkIsNamedOnce) {
  step_ = 5.2;
  link_ = 1.7;
  EXPECT_THAT(sentence(50), AllOf(HasSubstr("a step takes 5.2 s, and its forecast is 4 s"),
                                  HasSubstr("boundary 0.0>1.0 from stage 0.0 differs most: 1.7 s, "
                                            "forecast 0.5 s"),
                                  HasSubstr("other programs use the line")));
}

TEST_F(ForecastCheckTest, SlowStageIsNamedWithWhatToDoAboutAnAssumedSpeed) {
  step_ = 7;
  lower_busy_ = 5.1;
  EXPECT_THAT(sentence(), AllOf(HasSubstr("compute of stage 1.0 differs most: 5 s, forecast 2 s"),
                                HasSubstr("was assumed: strait probe")));
}

TEST_F(ForecastCheckTest, SlowCodecIsNamedWithWhatToDo) {
  step_ = 6;
  encode_ = 2.4;
  EXPECT_THAT(sentence(),
              AllOf(HasSubstr("encode of stage 0.0 differs most: 2.4 s, forecast 0.2 s"),
                    HasSubstr("fewer pipeline.threads")));
}

TEST_F(ForecastCheckTest, FasterStepNamesThePartThatIsFaster) {
  step_ = 2.5;
  lower_busy_ = 0.6;
  EXPECT_THAT(sentence(), HasSubstr("compute of stage 1.0 differs most: 0.5 s, forecast 2 s"));
}

// Neither a link nor a stage explains the longer step.
TEST_F(ForecastCheckTest, WaitingIsNamedWhereNoPartExplainsIt) {
  step_ = 6;
  link_ = 0.8;
  EXPECT_THAT(sentence(), HasSubstr("waiting of the busiest process differs most: 3.9 s"));
}

// A round takes 4 s of every fourth step: a median of steps would not have it, and most would have
// no waiting.
TEST_F(ForecastCheckTest, RoundsOfSomeStepsAreSpreadOverAll) {
  plan_.parts[0].seconds = 5;
  plan_.parts.back().seconds = 2.9;
  plan_.parts.push_back({Kind::sync, {}, "waiting for rounds of replicas", {}, 1, 1});
  ForecastCheck check(plan_);
  for (int step = 11; step < 11 + 10 * 4; ++step) {
    round_ = step % 4 == 0 ? 4 : 0;
    EXPECT_TRUE(run(check, step, 1, round_).empty()) << step;
  }
  for (const PartSeconds& row : check.table()) EXPECT_NEAR(*row.measured, row.forecast, 0.11);
}

TEST_F(ForecastCheckTest, FirstStepsOfALaunchDoNotCount) {
  ForecastCheck check(plan_);
  EXPECT_TRUE(run(check, 11, ForecastCheck::kWarmUp, 100).empty());
  EXPECT_TRUE(check.table().empty());
  EXPECT_TRUE(run(check, 13, 20).empty());
  EXPECT_EQ(check.table()[0], (PartSeconds{"a step", 4, 4}));
}

TEST_F(ForecastCheckTest, FewLongStepsAreNoEvent) {
  ForecastCheck check(plan_);
  run(check, 11, 12);
  EXPECT_TRUE(run(check, 23, 3, 100).empty());
  EXPECT_TRUE(run(check, 26, 20).empty());
}

// Its samples miss the caches of activations, so more is sent.
TEST_F(ForecastCheckTest, FirstEpochIsComparedWithItsOwnForecast) {
  ForecastCheck check(plan_);
  step_ = 5.5;
  link_ = 1;
  EXPECT_TRUE(run(check, 1, 10).empty());
  EXPECT_EQ(check.table()[0], (PartSeconds{"a step", 4.5, 5.5}));
  EXPECT_EQ(run(check, 11, 20).size(), 1U);
}

TEST_F(ForecastCheckTest, TableBeginsWithTheStepAndThePartThatDiffersMost) {
  ForecastCheck check(plan_);
  step_ = 4.4;
  link_ = 0.8;
  run(check, 11, 20);
  const std::vector<PartSeconds> table = check.table();
  ASSERT_EQ(table.size(), plan_.parts.size());
  EXPECT_EQ(table[0], (PartSeconds{"a step", 4, 4.4}));
  EXPECT_EQ(table[1].part, "waiting of the busiest process");
  EXPECT_EQ(table[2].part, "boundary 0.0>1.0 from stage 0.0");
  EXPECT_DOUBLE_EQ(*table[2].measured, 0.8);
}

// Links whose speed is not measured have no seconds, and are never the cause.
TEST_F(ForecastCheckTest, PartThatIsNotMeasuredIsLastAndNotNamed) {
  ForecastCheck check(plan_);
  step_ = 9;
  link_ = std::numeric_limits<double>::infinity();
  const std::vector<std::string> said = run(check, 11, 20);
  ASSERT_EQ(said.size(), 1U);
  EXPECT_THAT(said[0], Not(HasSubstr("boundary")));
  EXPECT_FALSE(check.table().back().measured);
}

}  // namespace
}  // namespace strait::run
