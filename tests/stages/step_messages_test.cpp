#include "stages/step_messages.h"

#include <gtest/gtest.h>

#include <random>

#include "framework/codec/message.h"
#include "stages/step_decision.h"

namespace strait::stages {
namespace {

StepReport example() {
  StepReport report;
  report.step = store::Step{41};
  report.loss = 1.25;
  report.target_tokens = 77;
  report.squared_norms = {{3, 9.0}, {5, 16.0}};
  return report;
}

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
  StepReport report = example();
  for (std::uint32_t i = 0; i < 100; ++i) {
    report.squared_norms.push_back({10 + i, static_cast<double>(random()) / 3e7});
  }
  report.round_incomplete = true;
  const StepReport back = read_report(to_frame(report));
  EXPECT_EQ(back.squared_norms, report.squared_norms);
  EXPECT_EQ(back.step, report.step);
  EXPECT_EQ(back.loss, report.loss);
  EXPECT_EQ(back.target_tokens, report.target_tokens);
  EXPECT_EQ(back.round_incomplete, report.round_incomplete);

  const StepDecision decision = decide_step(report, 0.3, true);
  const StepDecision received = read_decision(to_frame(decision));
  EXPECT_EQ(received.gradient_norm, decision.gradient_norm);
  EXPECT_EQ(received.gradient_factor, decision.gradient_factor);
  EXPECT_EQ(received.skip, decision.skip);
  EXPECT_TRUE(received.stop);
}

TEST(StepMessages, RefusesTruncatedAndOtherMessages) {
  const net::Frame report = to_frame(example());
  for (std::size_t size = 0; size < report.size(); ++size) {
    EXPECT_THROW(read_report(std::span(report.data(), size)), codec::CodecError) << size;
  }
  EXPECT_THROW(read_decision(report), codec::CodecError);
  net::Frame decision = to_frame(decide_step(example(), 1, false));
  EXPECT_THROW(read_report(decision), codec::CodecError);
  for (std::size_t size = 0; size < decision.size(); ++size) {
    EXPECT_THROW(read_decision(std::span(decision.data(), size)), codec::CodecError) << size;
  }
  decision.push_back(std::byte{0});
  EXPECT_THROW(read_decision(decision), codec::CodecError) << "one byte too many";
}

}  // namespace
}  // namespace strait::stages
