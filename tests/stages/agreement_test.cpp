#include "stages/agreement.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>

#include "framework/codec/codec_error.h"

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

TEST(Agreement, ClippingScalesDownToTheLimitAndNeverUp) {
  const StepVerdict tight = decide(example(), 1.0, false);
  EXPECT_DOUBLE_EQ(tight.gradient_norm, 5.0);
  EXPECT_DOUBLE_EQ(tight.gradient_factor, 1.0 / (5.0 + 1e-6));
  EXPECT_DOUBLE_EQ(decide(example(), 100.0, false).gradient_factor, 1.0);
  EXPECT_DOUBLE_EQ(decide(example(), 0.0, false).gradient_factor, 1.0);
}

TEST(Agreement, WhatIsNotFiniteAnywhereSkipsTheStepEverywhere) {
  StepReport loss = example();
  loss.loss = std::numeric_limits<double>::quiet_NaN();
  EXPECT_TRUE(decide(loss, 1.0, false).skip);
  StepReport norm = example();
  norm.squared_norms.push_back({9, std::numeric_limits<double>::infinity()});
  EXPECT_TRUE(decide(norm, 0.0, false).skip);
  EXPECT_FALSE(decide(example(), 1.0, true).skip);
}

// Stages of several chunks have parameters from here and there in the model.
TEST(Agreement, NormsAreAddedUpInTheModelsOrderWhoeverReportsThem) {
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
    EXPECT_EQ(decide(report, 0, false).gradient_norm, decide(once, 0, false).gradient_norm);
  }
}

TEST(Agreement, NotesKeepEveryBitOnTheWay) {
  std::mt19937_64 random(3);
  StepReport report = example();
  for (std::uint32_t i = 0; i < 100; ++i) {
    report.squared_norms.push_back({10 + i, static_cast<double>(random()) / 3e7});
  }
  report.parted = true;
  const StepReport back = read_report(to_frame(report));
  EXPECT_EQ(back.squared_norms, report.squared_norms);
  EXPECT_EQ(back.step, report.step);
  EXPECT_EQ(back.loss, report.loss);
  EXPECT_EQ(back.target_tokens, report.target_tokens);
  EXPECT_EQ(back.parted, report.parted);

  const StepVerdict verdict = decide(report, 0.3, true);
  const StepVerdict told = read_verdict(to_frame(verdict));
  EXPECT_EQ(told.gradient_norm, verdict.gradient_norm);
  EXPECT_EQ(told.gradient_factor, verdict.gradient_factor);
  EXPECT_EQ(told.skip, verdict.skip);
  EXPECT_TRUE(told.stop);
}

TEST(Agreement, CutOrWrongNotesAreRefused) {
  const net::Frame report = to_frame(example());
  for (std::size_t size = 0; size < report.size(); ++size) {
    EXPECT_THROW(read_report(std::span(report.data(), size)), codec::CodecError) << size;
  }
  EXPECT_THROW(read_verdict(report), codec::CodecError);
  EXPECT_THROW(read_report(to_frame(decide(example(), 1, false))), codec::CodecError);
}

}  // namespace
}  // namespace strait::stages
