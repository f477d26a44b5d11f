#include <gtest/gtest.h>

#include "stages/boundary_codecs.h"

namespace strait::stages {
namespace {

using codec::Choice;
using Encoding = Choice::Encoding;

// A link that only reports a bandwidth.
class RatedLink final : public net::Link {
 public:
  double bytes_per_second = 0;

  bool send_until(net::Frame&, std::chrono::steady_clock::time_point) override {
    ADD_FAILURE() << "nothing is sent here";
    return true;
  }
  net::Frame receive() override { throw std::logic_error("nothing arrives here"); }
  std::optional<net::Frame> receive_until(std::chrono::steady_clock::time_point) override {
    return std::nullopt;
  }
  bool flush(std::chrono::steady_clock::time_point) override { return true; }
  void abort(const net::LinkError& /*cause*/) override {}
  net::LinkState state() const override {
    net::LinkState state;
    state.bytes_per_second = bytes_per_second;
    return state;
  }
};

class CodecChooserTest : public testing::Test {
 protected:
  // Steps of a second of compute with `values` values each; `change` is the ratio of the changes'
  // norm to theirs.
  void steps(int count, std::uint64_t values, double change) {
    for (int i = 0; i < count; ++i, ++step_) {
      chosen_ = chooser_.choose(static_cast<store::Step>(step_), traffic_);
      waits_.step_ended(1);
      traffic_.messages += 8;
      traffic_.raw_bytes += 4 * values;
      traffic_.changed_value_squares += 1;
      traffic_.change_squares += change * change;
    }
  }

  RatedLink link_;
  WaitClock waits_;
  CodecChooser chooser_{codec::ChoiceLimits(), link_, waits_};
  codec::Traffic traffic_;
  Choice chosen_;
  std::int64_t step_ = 0;
};

TEST_F(CodecChooserTest, KeepsFirstChoiceWithoutMeasurements) {
  steps(20, 1000, 0.2);
  EXPECT_EQ(chosen_, codec::first_choice({}));
  EXPECT_TRUE(chooser_.take_decisions().empty());
}

TEST_F(CodecChooserTest, ReportsItsFirstDecisionAndThenChangesOnly) {
  link_.bytes_per_second = 100;  // 4 bits take 5 s
  steps(20, 1000, 0.2);
  const auto first = chooser_.take_decisions();
  ASSERT_EQ(first.size(), 1U);
  EXPECT_EQ(first.front().step, store::Step{CodecChooser::kSampleEvery});
  EXPECT_EQ(first.front().decision.choice, codec::first_choice({}));
  EXPECT_EQ(first.front().decision.why,
            "delta at 4 bits (8 on a cache miss), 5.16 s a step (6 bits 7.66 s, bfloat16 20 s) at "
            "0.0008 Mbit/s with 1 s of compute; change 20 %, expected error 2 %");
  link_.bytes_per_second = 1e9;
  steps(20, 1000, 0.2);
  EXPECT_EQ(chooser_.take_decisions().size(), 1U);
  EXPECT_EQ(chosen_.encoding, Encoding::raw);
}

// What passes between steps, as evaluations and checkpoints do, hides no transfer.
TEST_F(CodecChooserTest, CountsTheComputeOfTrainingStepsAlone) {
  link_.bytes_per_second = 700;  // 4 bits take 0.74 s, and 5 more than compute hides
  for (int i = 0; i < 5; ++i) {
    const WaitClock::Wait evaluation(waits_, "an evaluation", link_);
    steps(CodecChooser::kSampleEvery, 1000, 0.2);
  }
  EXPECT_EQ(chosen_.bits, 4);
  const auto made = chooser_.take_decisions();
  ASSERT_EQ(made.size(), 1U);
  EXPECT_NE(made.front().decision.why.find("with 1 s of compute"), std::string::npos)
      << made.front().decision.why;
}

TEST_F(CodecChooserTest, ChoosesPlainValuesOnFastLinkAndReportsOnce) {
  link_.bytes_per_second = 1e6;
  steps(20, 1000, 0.2);
  EXPECT_EQ(chosen_.encoding, Encoding::raw);
  const auto made = chooser_.take_decisions();
  ASSERT_EQ(made.size(), 1U);
  EXPECT_EQ(made.front().step, store::Step{CodecChooser::kSampleEvery});
  EXPECT_NE(made.front().decision.why.find("raw bfloat16"), std::string::npos);
  EXPECT_TRUE(chooser_.take_decisions().empty());
}

TEST_F(CodecChooserTest, ChoosesMoreBitsForAGradientWithLittleNoise) {
  link_.bytes_per_second = 1e-3;
  codec::ChoiceLimits limits;
  limits.has_cache = false;
  for (const double noise : {1.0, 0.2}) {
    CodecChooser chooser{limits, link_, waits_};
    codec::Traffic traffic;
    for (int step = 0; step < 8; ++step) {
      chosen_ = chooser.choose(store::Step{step}, traffic);
      traffic.raw_bytes += 4000;
      traffic.value_squares += 1;
      traffic.error_squares += 0.01;  // of 4 bits
      traffic.gradient_squares += 1;
      traffic.noise_squares += noise;
    }
    EXPECT_EQ(chosen_, (Choice{Encoding::fixed, noise == 1 ? 4 : 5, 8})) << noise;
  }
}

TEST_F(CodecChooserTest, ChoosesValuesOnSlowLinkIfSamplesChange) {
  link_.bytes_per_second = 1e-3;
  steps(8, 1000, 1.3);
  EXPECT_EQ(chosen_.encoding, Encoding::fixed);
}

}  // namespace
}  // namespace strait::stages
