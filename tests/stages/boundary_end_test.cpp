#include "stages/boundary_end.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <future>
#include <memory>
#include <thread>

#include "framework/codec/message.h"
#include "framework/codec/raw.h"
#include "stages/chunk_ports.h"
#include "stages/step_decision.h"
#include "tests/memory_links.h"
#include "tests/stages/failing_encoder.h"
#include "tests/stages/stage_threads.h"

namespace strait::stages {
namespace {

constexpr Phase kTraining{store::Step{5}, true};
constexpr Phase kEvaluation{store::Step{5}, false};

BoundaryCodecs raw_codecs() {
  BoundaryCodecs codecs;
  codecs.encoder = std::make_unique<codec::RawEncoder>(at::kFloat);
  codecs.decoder = std::make_unique<codec::RawDecoder>(at::kFloat, at::kFloat);
  codecs.evaluation_encoder = std::make_unique<codec::RawEncoder>(at::kBFloat16);
  codecs.evaluation_decoder = std::make_unique<codec::RawDecoder>(at::kBFloat16, at::kFloat);
  codecs.limits = {3, 4, 3};
  return codecs;
}

// Sends only headers; resends rows once it is allowed to.
class BlockedEncoder final : public codec::Encoder {
 public:
  explicit BlockedEncoder(std::shared_future<void> may_answer)
      : may_answer_(std::move(may_answer)) {}
  void encode(const codec::TensorHeader&, const at::Tensor&, net::Frame&) override {}
  void encode_whole(const codec::TensorHeader& header, net::Frame& frame) override {
    may_answer_.wait();
    frame.insert(frame.end(), static_cast<std::size_t>(header.rows.size()), std::byte{9});
    traffic_.resends += static_cast<std::uint64_t>(header.rows.size());
  }
  codec::Traffic traffic() const override { return traffic_; }

 private:
  const std::shared_future<void> may_answer_;
  codec::Traffic traffic_;
};

// Misses the base of every odd sample; rows that are resent have the value 9.
class LossyDecoder final : public codec::Decoder {
 public:
  codec::Decoded decode(const codec::TensorHeader& header, std::span<const std::byte>) override {
    codec::Decoded decoded;
    decoded.values = at::zeros({header.rows.size(), header.rows.padded_length, header.width});
    for (std::int64_t position = 0; position < header.rows.size(); ++position) {
      if (number(header.rows.rows[static_cast<std::size_t>(position)].sample) % 2 == 1) {
        decoded.missing.push_back(position);
      }
    }
    ++traffic_.rows;
    return decoded;
  }
  void complete(const codec::TensorHeader&, std::span<const std::byte> payload,
                std::span<const std::int64_t> places, const at::Tensor& values) override {
    for (std::size_t i = 0; i < places.size(); ++i) {
      values[places[i]].fill_(std::to_integer<int>(payload[i]));
    }
  }
  codec::Traffic traffic() const override { return traffic_; }

 private:
  codec::Traffic traffic_;
};

// Both ends of boundary 0>1 in one process, with their ports.
class BoundaryEndTest : public testing::Test {
 protected:
  BoundaryEndTest() { connect(raw_codecs(), raw_codecs()); }

  void connect(BoundaryCodecs upper_codecs, BoundaryCodecs lower_codecs) {
    auto [first, second] = memory_links({0, 0}, {1, 0}, "boundary 0>1");
    upper_ = std::make_unique<BoundaryEnd>(std::move(first), std::move(upper_codecs), upper_waits_,
                                           "stage 1");
    lower_ = std::make_unique<BoundaryEnd>(std::move(second), std::move(lower_codecs), lower_waits_,
                                           "stage 0");
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

TEST_F(BoundaryEndTest, CarriesActivationsAndGradientsBitForBit) {
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

// Of training, by the end that did it, and once.
TEST_F(BoundaryEndTest, CountsSecondsOfEncodingAndDecoding) {
  LinkDownstream down(*upper_);
  LinkUpstream up(*lower_);
  down.give(kEvaluation, MicroBatch{0}, flow(0));
  up.take(kEvaluation, MicroBatch{0});
  EXPECT_EQ(upper_->take_coding().encode, 0);
  EXPECT_EQ(lower_->take_coding().decode, 0);
  down.give(kTraining, MicroBatch{0}, flow(0));
  up.take(kTraining, MicroBatch{0});
  const CodingSeconds sender = upper_->take_coding();
  const CodingSeconds receiver = lower_->take_coding();
  EXPECT_GT(sender.encode, 0);
  EXPECT_EQ(sender.decode, 0);
  EXPECT_GT(receiver.decode, 0);
  EXPECT_EQ(receiver.encode, 0);
  EXPECT_EQ(upper_->take_coding().encode, 0);
}

TEST(BoundaryEndSpans, BothEndsNumberAMessageAlike) {
  trace::SpanLog upper("stage 0.0", 0);
  trace::SpanLog lower("stage 1.0", 1);
  WaitClock upper_waits;
  WaitClock lower_waits;
  {
    auto [first, second] = memory_links({0, 0}, {1, 0}, "boundary 0>1");
    const auto end = [](trace::SpanLog& log, bool sends_activations) {
      return BoundarySpans(log, {"0.0>1.0", 3, sends_activations});
    };
    BoundaryEnd above(std::move(first), raw_codecs(), upper_waits, "stage 1", at::kCPU,
                      std::chrono::seconds(30), end(upper, true));
    BoundaryEnd below(std::move(second), raw_codecs(), lower_waits, "stage 0", at::kCPU,
                      std::chrono::seconds(30), end(lower, false));
    LinkDownstream down(above);
    LinkUpstream up(below);
    Flow sent;
    sent.values = at::randn({1, 4, 3});
    sent.rows.padded_length = 4;
    sent.rows.rows = {codec::Row{store::SampleId{7}, {3, 1}}};
    for (int m = 0; m < 2; ++m) {
      down.give(kTraining, MicroBatch{m}, sent);
      up.give_gradient(kTraining, MicroBatch{m}, up.take(kTraining, MicroBatch{m}).values);
      down.take_gradient(kTraining, MicroBatch{m});
    }
  }
  const auto named = [](const trace::SpanLog& log, const std::string& category) {
    std::vector<std::pair<std::uint64_t, std::int64_t>> messages;  // with micro-batches
    for (const trace::Span& span : log.spans()) {
      EXPECT_LE(span.start, span.end);
      if (category == span.category) messages.emplace_back(span.message, span.value);
    }
    return messages;
  };
  ASSERT_EQ(named(upper, "send").size(), 2U);
  EXPECT_EQ(named(upper, "send"), named(lower, "receive"));
  EXPECT_EQ(named(lower, "send"), named(upper, "receive"));
  EXPECT_NE(named(upper, "send"), named(lower, "send"));
  EXPECT_EQ(named(upper, "encode").size(), 2U);
  EXPECT_EQ(named(upper, "decode").size(), 2U);
}

TEST_F(BoundaryEndTest, UsesOwnCodecForEvaluation) {
  LinkDownstream down(*upper_);
  LinkUpstream up(*lower_);
  const Flow sent = flow(0);
  down.give(kEvaluation, MicroBatch{0}, sent);
  const Flow got = up.take(kEvaluation, MicroBatch{0});
  EXPECT_TRUE(at::equal(got.values, sent.values.to(at::kBFloat16).to(at::kFloat)));
}

TEST_F(BoundaryEndTest, CarriesReportsUpAndDecisionsDown) {
  LinkDownstream down(*upper_);
  LinkUpstream up(*lower_);
  StepReport report;
  report.step = kTraining.step;
  report.target_tokens = 1;
  report.squared_norms = {{0, 4.0}};
  // decide() waits for the decision, so this test announces it before.
  StepDecision decision = decide_step(report, 1.0, true);
  down.announce(decision);
  const StepDecision received = up.decide(report);
  EXPECT_EQ(received.gradient_factor, decision.gradient_factor);
  EXPECT_TRUE(received.stop);
  EXPECT_EQ(down.collect(kTraining, {}).squared_norms, report.squared_norms);
}

TEST_F(BoundaryEndTest, RefusesMicroBatchOutOfOrder) {
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

TEST_F(BoundaryEndTest, EveryCallAfterAbortThrowsItsCause) {
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

// Computation of this end may be waiting elsewhere, so that it calls nothing that throws.
TEST_F(BoundaryEndTest, EncoderThatFailsEndsThePeerWithItsCause) {
  BoundaryCodecs failing = raw_codecs();
  failing.encoder = std::make_unique<FailingEncoder>("the activation cache cannot grow");
  auto [first, second] = memory_links({0, 0}, {1, 0}, "boundary 0>1");
  upper_ = std::make_unique<BoundaryEnd>(std::move(first), std::move(failing), upper_waits_,
                                         "stage 1", at::kCPU, std::chrono::milliseconds(100));
  lower_ = std::make_unique<BoundaryEnd>(std::move(second), raw_codecs(), lower_waits_, "stage 0");
  LinkDownstream(*upper_).give(kTraining, MicroBatch{0}, flow(0));
  try {
    lower_->take(codec::Kind::forward, kTraining, MicroBatch{0});
    FAIL() << "something was taken that could not be encoded";
  } catch (const net::LinkError& error) {
    EXPECT_THAT(error.what(), testing::HasSubstr("the activation cache cannot grow"));
  }
}

TEST_F(BoundaryEndTest, InvalidMessagePoisonsEnd) {
  upper_->link().send(net::Frame(30, std::byte{1}));
  EXPECT_THROW(lower_->take(codec::Kind::forward, kTraining, MicroBatch{0}), codec::CodecError);
  EXPECT_THROW(lower_->send_note(net::Frame(1)), codec::CodecError);
}

// Before a decoder sees it: few bytes of an entropy coder may stand for gigabytes.
TEST_F(BoundaryEndTest, TensorBeyondLimitsOfRunPoisonsEnd) {
  struct Case {
    at::IntArrayRef shape;
    std::string claim;
  };
  for (const Case& one : {Case{{1, 4, 5}, "1 rows of 4 tokens with 5 values"},
                          Case{{4, 4, 3}, "4 rows of 4 tokens with 3 values"},
                          Case{{1, 5, 3}, "1 rows of 5 tokens with 3 values"}}) {
    connect(raw_codecs(), raw_codecs());
    Flow large;
    large.values = at::randn(one.shape);
    large.rows.padded_length = one.shape[1];
    large.rows.rows.assign(static_cast<std::size_t>(one.shape[0]),
                           codec::Row{store::SampleId{0}, {3, 1}});
    LinkDownstream(*upper_).give(kTraining, MicroBatch{0}, large);
    try {
      lower_->take(codec::Kind::forward, kTraining, MicroBatch{0});
      FAIL() << one.claim;
    } catch (const codec::CodecError& error) {
      EXPECT_EQ(error.what(), "stage 0 sent the forward of step 5 micro-batch 0 as " + one.claim +
                                  " each; this run has at most 3 rows of 4 tokens with 3 values");
    }
  }
}

TEST_F(BoundaryEndTest, CountsAndNamesWaits) {
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

// The lower end misses the base of odd samples; the upper one resends them once allowed to.
class ResendTest : public BoundaryEndTest {
 protected:
  ResendTest() { connect_healing(std::make_unique<LossyDecoder>()); }

  void connect_healing(std::unique_ptr<codec::Decoder> decoder) {
    allowed_ = {};
    BoundaryCodecs upper = raw_codecs();
    upper.encoder = std::make_unique<BlockedEncoder>(allowed_.get_future().share());
    BoundaryCodecs lower = raw_codecs();
    lower.decoder = std::move(decoder);
    connect(std::move(upper), std::move(lower));
  }

  // A tensor of these samples.
  static Flow rows(std::initializer_list<std::int64_t> samples) {
    Flow made;
    made.values = at::ones({static_cast<std::int64_t>(samples.size()), 4, 3});
    made.rows.padded_length = 4;
    for (const std::int64_t sample : samples) {
      made.rows.rows.push_back(codec::Row{static_cast<store::SampleId>(sample), {3, 1}});
    }
    return made;
  }

  // A message of the upper end about these samples.
  net::Frame about(codec::Kind kind, std::initializer_list<std::int64_t> samples,
                   int micro_batch = 0) {
    codec::TensorHeader header;
    header.kind = kind;
    header.step = kTraining.step;
    header.micro_batch = micro_batch;
    header.width = 3;
    header.rows = rows(samples).rows;
    net::Frame frame;
    codec::write_header(header, frame);
    return frame;
  }

  void expect_refused(const std::string& words) {
    try {
      lower_->take(codec::Kind::forward, kTraining, MicroBatch{0});
      FAIL() << "it was taken";
    } catch (const codec::CodecError& error) {
      EXPECT_THAT(error.what(), testing::HasSubstr(words));
    }
  }

  std::promise<void> allowed_;
};

TEST_F(ResendTest, ResendsMissingRowsBeforeLaterTensors) {
  LinkDownstream(*upper_).give(kTraining, MicroBatch{0}, rows({1, 2, 3}));
  while (lower_->received().rows < 1) std::this_thread::yield();
  // The sending thread is about to resend, which is not allowed yet.
  upper_->link().send(about(codec::Kind::forward, {4, 6}, 1));
  while (lower_->received().rows < 2) std::this_thread::yield();
  // Both have arrived, the first with missing rows: take() waits for it and returns no other.
  std::future<Flow> taken = std::async(std::launch::async, [this] {
    return lower_->take(codec::Kind::forward, kTraining, MicroBatch{0});
  });
  while (lower_waits_.read().what != "forward of micro-batch 0") std::this_thread::yield();
  allowed_.set_value();
  const at::Tensor values = taken.get().values;
  const at::Tensor expected = at::tensor({9.0F, 0.0F, 9.0F}).view({3, 1, 1}).expand({3, 4, 3});
  EXPECT_TRUE(at::equal(values, expected));
  const Flow second = lower_->take(codec::Kind::forward, kTraining, MicroBatch{1});
  EXPECT_EQ(second.rows, rows({4, 6}).rows);
  EXPECT_EQ(upper_->sent().resends, 2U);
}

TEST_F(ResendTest, SeveralTensorsWaitForResentRows) {
  LinkDownstream down(*upper_);
  allowed_.set_value();
  constexpr int kMany = 50;
  for (int m = 0; m < kMany; ++m) down.give(kTraining, MicroBatch{m}, rows({2 * m, 2 * m + 1}));
  for (int m = 0; m < kMany; ++m) {
    const Flow got = lower_->take(codec::Kind::forward, kTraining, MicroBatch{m});
    EXPECT_EQ(got.values.select(0, 0).max().item<float>(), 0.0F) << m;
    EXPECT_EQ(got.values.select(0, 1).min().item<float>(), 9.0F) << m;
  }
}

// As LossyDecoder, with tensors that each exceed the limit of the inbox (and take no memory).
class HugeDecoder final : public codec::Decoder {
 public:
  codec::Decoded decode(const codec::TensorHeader& header,
                        std::span<const std::byte> payload) override {
    codec::Decoded decoded = small_.decode(header, payload);
    constexpr auto kElements = static_cast<std::int64_t>(BoundaryEnd::kQueueBytes / sizeof(float));
    decoded.values = at::zeros({1, 1, 1}).expand({1, kElements + 1, 1});
    return decoded;
  }
  void complete(const codec::TensorHeader&, std::span<const std::byte>,
                std::span<const std::int64_t>, const at::Tensor& values) override {
    EXPECT_GT(values.nbytes(), BoundaryEnd::kQueueBytes);
  }
  codec::Traffic traffic() const override { return small_.traffic(); }

 private:
  LossyDecoder small_;
};

TEST_F(ResendTest, AcceptsResentRowsWhileInboxIsFull) {
  connect_healing(std::make_unique<HugeDecoder>());
  LinkDownstream(*upper_).give(kTraining, MicroBatch{0}, rows({1}));
  while (lower_->received().rows < 1) std::this_thread::yield();
  allowed_.set_value();
  const Flow got = lower_->take(codec::Kind::forward, kTraining, MicroBatch{0});
  EXPECT_GT(got.values.nbytes(), BoundaryEnd::kQueueBytes);
}

TEST_F(ResendTest, RefusesResentRowsThatWereNotRequested) {
  upper_->link().send(about(codec::Kind::whole, {1}));
  expect_refused("were not requested");
  allowed_.set_value();
}

TEST_F(ResendTest, RefusesOtherResentRows) {
  LinkDownstream(*upper_).give(kTraining, MicroBatch{0}, rows({1, 2, 3}));
  while (lower_->received().rows < 1) std::this_thread::yield();
  upper_->link().send(about(codec::Kind::whole, {1}));
  expect_refused("are not the requested ones: received");
  allowed_.set_value();
}

TEST_F(BoundaryEndTest, CodecWithoutCacheRefusesToResend) {
  codec::TensorHeader header;
  header.kind = codec::Kind::resend;
  header.rows = flow(1).rows;
  net::Frame frame;
  codec::write_header(header, frame);
  lower_->link().send(net::Frame(frame));
  EXPECT_THROW(upper_->take(codec::Kind::backward, kTraining, MicroBatch{0}), codec::CodecError);
}

TEST_F(BoundaryEndTest, CountsTrainingTrafficAtBothEnds) {
  LinkDownstream down(*upper_);
  LinkUpstream up(*lower_);
  down.give(kEvaluation, MicroBatch{0}, flow(0));
  up.take(kEvaluation, MicroBatch{0});
  EXPECT_EQ(upper_->sent(), codec::Traffic{}) << "evaluation does not count";
  for (int m = 0; m < 3; ++m) {
    down.give(kTraining, MicroBatch{m}, flow(m));
    up.take(kTraining, MicroBatch{m});
  }
  EXPECT_EQ(upper_->sent().rows, 3U);
  EXPECT_EQ(upper_->sent().payload_bytes, 3U * 4 * 3 * sizeof(float));
  EXPECT_EQ(lower_->received(), upper_->sent());
}

}  // namespace
}  // namespace strait::stages
