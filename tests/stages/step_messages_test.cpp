#include "stages/step_messages.h"

#include <gtest/gtest.h>

#include <random>

#include "framework/codec/message.h"
#include "stages/step_decision.h"
#include "tests/stages/example_report.h"

namespace strait::stages {
namespace {

// A stage with several chunks has parameters from several parts of the model.
TEST(StepMessages, NormsAreInModelOrderForEveryPartition) {
  const std::vector<SquaredNorm> all = {{0, 1e16}, {1, 1.0}, {2, 1.0}, {3, 3e15}, {4, 0.5}};
  StepReport once;
  add_norms(once, all);
  for (const unsigned lower : {0b10101U, 0b01010U, 0b11100U}) {
    StepReport report;
    for (const bool from_below : {true, false}) {
      std::vector<SquaredNorm> mine;
      for (const SquaredNorm& norm : all) {
        if (((lower >> norm.parameter) & 1U) == (from_below ? 1U : 0U)) mine.push_back(norm);
      }
      add_norms(report, mine);
    }
    EXPECT_EQ(report.squared_norms, all);
    EXPECT_EQ(decide_step(report, 0, false).gradient_norm,
              decide_step(once, 0, false).gradient_norm);
  }
}

TEST(StepMessages, RoundTripKeepsEveryBit) {
  std::mt19937_64 random(3);
  StepReport report = example_report();
  for (std::uint32_t i = 0; i < 100; ++i) {
    report.squared_norms.push_back({10 + i, static_cast<double>(random()) / 3e7});
  }
  report.tokens = 99;
  report.margin = 0.25;
  report.accuracy = 0.75;
  report.round_incomplete = true;
  EXPECT_EQ(read_report(to_frame(report)), report);

  StepDecision decision;
  decision.step = store::Step{43};
  decision.loss = 1.0 / 3;
  decision.margin = 2.0 / 3;
  decision.accuracy = 0.6;
  decision.target_tokens = 78;
  decision.tokens = 98;
  decision.gradient_norm = 2.0 / 7;
  decision.gradient_factor = 5.0 / 7;
  decision.epoch = 6;
  // One at a time: a mix-up of two would not be seen if both were true.
  for (bool StepDecision::*flag :
       {&StepDecision::skip, &StepDecision::stop, &StepDecision::save, &StepDecision::retry}) {
    StepDecision one = decision;
    one.*flag = true;
    EXPECT_EQ(read_decision(to_frame(one)), one);
  }
}

TEST(StepMessages, RefusesTruncatedAndOtherMessages) {
  const net::Frame report = to_frame(example_report());
  for (std::size_t size = 0; size < report.size(); ++size) {
    EXPECT_THROW(read_report(std::span(report.data(), size)), fields::MessageError) << size;
  }
  EXPECT_THROW(read_decision(report), fields::MessageError);
  net::Frame decision = to_frame(decide_step(example_report(), 1, false));
  EXPECT_THROW(read_report(decision), fields::MessageError);
  for (std::size_t size = 0; size < decision.size(); ++size) {
    EXPECT_THROW(read_decision(std::span(decision.data(), size)), fields::MessageError) << size;
  }
  decision.push_back(std::byte{0});
  EXPECT_THROW(read_decision(decision), fields::MessageError) << "one byte too many";
}

}  // namespace
}  // namespace strait::stages
