#include "stages/boundary_end.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>

#include "framework/codec/codec_error.h"
#include "framework/codec/raw.h"
#include "framework/net/memory_link.h"
#include "stages/link_downstream.h"
#include "stages/link_upstream.h"

namespace strait::stages {
namespace {

BoundaryCodecs raw_codecs() {
  BoundaryCodecs codecs;
  codecs.encoder = std::make_unique<codec::RawEncoder>(at::kFloat);
  codecs.decoder = std::make_unique<codec::RawDecoder>(at::kFloat, at::kFloat);
  codecs.evaluation_encoder = std::make_unique<codec::RawEncoder>(at::kBFloat16);
  codecs.evaluation_decoder = std::make_unique<codec::RawDecoder>(at::kBFloat16, at::kFloat);
  return codecs;
}

// The two ends of boundary 0>1 in one process, with the ports that stand on them.
class BoundaryEndTest : public testing::Test {
 protected:
  BoundaryEndTest() {
    net::MemoryEnd left;
    left.name = {0, 0};
    left.options.name = "boundary 0>1";
    left.options.peer = {1, 0};
    net::MemoryEnd right = left;
    right.name = {1, 0};
    right.options.peer = {0, 0};
    auto [first, second] = net::memory_link(left, right);
    upper_ = std::make_unique<BoundaryEnd>(std::move(first), raw_codecs(), upper_waits_, "stage 1");
    lower_ =
        std::make_unique<BoundaryEnd>(std::move(second), raw_codecs(), lower_waits_, "stage 0");
  }

  static Flow flow(std::int64_t sample) {
    Flow made;
    made.values = at::randn({1, 4, 3});
    made.rows.padded_length = 4;
    made.rows.rows = {codec::Row{static_cast<store::SampleId>(sample), {3, 1}}};
    return made;
  }

  WaitClock upper_waits_;
  WaitClock lower_waits_;
  std::unique_ptr<BoundaryEnd> upper_;
  std::unique_ptr<BoundaryEnd> lower_;
};

constexpr Phase kTraining{store::Step{5}, true};
constexpr Phase kEvaluation{store::Step{5}, false};

TEST_F(BoundaryEndTest, ActivationsAndGradientsCrossWithTheirRowsAndTheirBits) {
  LinkDownstream down(*upper_);
  LinkUpstream up(*lower_);
  for (int m = 0; m < 5; ++m) {
    const Flow sent = flow(m);
    down.give(kTraining, MicroBatch{m}, sent);
    const Flow got = up.take(kTraining, MicroBatch{m});
    EXPECT_TRUE(at::equal(got.values, sent.values));
    EXPECT_EQ(got.rows, sent.rows);
    up.give_gradient(kTraining, MicroBatch{m}, sent.values * 2);
    EXPECT_TRUE(at::equal(down.take_gradient(kTraining, MicroBatch{m}), sent.values * 2));
  }
}

TEST_F(BoundaryEndTest, EvaluationCrossesInItsOwnCodec) {
  LinkDownstream down(*upper_);
  LinkUpstream up(*lower_);
  const Flow sent = flow(0);
  down.give(kEvaluation, MicroBatch{0}, sent);
  const Flow got = up.take(kEvaluation, MicroBatch{0});
  EXPECT_TRUE(at::equal(got.values, sent.values.to(at::kBFloat16).to(at::kFloat)));
}

TEST_F(BoundaryEndTest, ReportsGoUpAndVerdictsComeDown) {
  LinkDownstream down(*upper_);
  LinkUpstream up(*lower_);
  StepReport report;
  report.step = kTraining.step;
  report.squared_norms = {4.0};
  // settle() waits for the verdict, so the verdict is sent ahead of it, as an eager head would.
  StepVerdict verdict = decide(report, 1.0, true);
  down.announce(verdict);
  const StepVerdict settled = up.settle(report);
  EXPECT_EQ(settled.gradient_factor, verdict.gradient_factor);
  EXPECT_TRUE(settled.stop);
  EXPECT_EQ(down.collect(kTraining).squared_norms, report.squared_norms);
}

TEST_F(BoundaryEndTest, AMicroBatchOutOfOrderIsNamedNotTrainedOn) {
  LinkDownstream down(*upper_);
  LinkUpstream up(*lower_);
  down.give(kTraining, MicroBatch{1}, flow(1));
  try {
    up.take(kTraining, MicroBatch{0});
    FAIL() << "micro-batch 1 was taken for micro-batch 0";
  } catch (const codec::CodecError& error) {
    EXPECT_THAT(error.what(),
                testing::HasSubstr("step 5 micro-batch 1 where step 5 micro-batch 0"));
  }
}

TEST_F(BoundaryEndTest, AnAbortedLinkReachesEveryLaterCallWithItsCause) {
  upper_->link().abort(net::LinkError(net::LinkError::Kind::aborted, "stage 0 ran out of memory"));
  for (int i = 0; i < 3; ++i) {
    try {
      lower_->take(codec::Kind::forward, kTraining, MicroBatch{0});
      FAIL() << "something was taken from a dead link";
    } catch (const net::LinkError& error) {
      EXPECT_THAT(error.what(), testing::HasSubstr("stage 0 ran out of memory"));
    }
  }
}

TEST_F(BoundaryEndTest, GarbageFromAPeerPoisonsTheEnd) {
  upper_->link().send(net::Frame(30, std::byte{1}));
  EXPECT_THROW(lower_->take(codec::Kind::forward, kTraining, MicroBatch{0}), codec::CodecError);
  EXPECT_THROW(lower_->send_note(net::Frame(1)), codec::CodecError);
}

TEST_F(BoundaryEndTest, WaitingIsCountedAndNamed) {
  std::thread taker([this] { lower_->take(codec::Kind::forward, kTraining, MicroBatch{0}); });
  WaitClock::Reading reading;
  while (reading.what.empty()) reading = lower_waits_.read();
  EXPECT_EQ(reading.what, "forward of micro-batch 0");
  EXPECT_EQ(reading.link, &lower_->link());
  LinkDownstream(*upper_).give(kTraining, MicroBatch{0}, flow(0));
  taker.join();
  EXPECT_TRUE(lower_waits_.read().what.empty());
  EXPECT_GT(lower_waits_.read().total, 0.0);
}

}  // namespace
}  // namespace strait::stages
