#include "launcher/run/control_message.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <random>

#include "tests/refusal_of.h"

namespace strait::run {
namespace {

using testing::HasSubstr;

net::Frame frame_of(const std::string& text) {
  net::Frame frame(text.size());
  if (!text.empty()) std::memcpy(frame.data(), text.data(), text.size());
  return frame;
}

std::string text_of(const net::Frame& frame) {
  std::string text(frame.size(), '\0');
  if (!text.empty()) std::memcpy(text.data(), frame.data(), frame.size());
  return text;
}

template <class Message>
Message through_stage(const Message& message) {
  return std::get<Message>(parse_stage_message(format(StageMessage(message))));
}
template <class Message>
Message through_coordinator(const Message& message) {
  return std::get<Message>(parse_coordinator_message(format(CoordinatorMessage(message))));
}

std::string refusal(const std::string& text) {
  return refusal_of<base::MessageError>([&] { parse_stage_message(frame_of(text)); });
}

TEST(ControlMessage, ProgressKeepsEveryField) {
  Progress sent;
  sent.step = store::Step{418};
  sent.micro_batch = 5;
  sent.phase = "forward";
  sent.waits_for = "stage 2.0 waits 41 s for …";
  sent.waits_on = net::ProcessName{1, 0};
  sent.waited_seconds = 41.25;
  sent.finished_actions = std::numeric_limits<std::uint64_t>::max();
  sent.links = {{"boundary 0>1", "stage 1.0", 12, 34}, {"boundary 1>2", "stage 2.0", 0, 7}};
  const Progress got = through_stage(sent);
  EXPECT_EQ(got.step, sent.step);
  EXPECT_EQ(got.micro_batch, 5);
  EXPECT_EQ(got.phase, "forward");
  EXPECT_EQ(got.waits_for, sent.waits_for);
  EXPECT_EQ(got.waits_on, sent.waits_on);
  EXPECT_EQ(got.waited_seconds, 41.25);
  EXPECT_EQ(got.finished_actions, sent.finished_actions);
  ASSERT_EQ(got.links.size(), 2U);
  EXPECT_EQ(got.links[1].name, "boundary 1>2");
  EXPECT_EQ(got.links[0].received_bytes, 34U);
}

TEST(ControlMessage, StepNumbersAreBitEqual) {
  const std::random_device::result_type seed = std::random_device{}();
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937_64 random(seed);
  for (int i = 0; i < 2000; ++i) {
    const std::uint64_t bits = random();
    double value = 0;
    std::memcpy(&value, &bits, sizeof value);
    if (!std::isfinite(value)) continue;
    StepDone sent;
    sent.loss = value;
    sent.seconds = -value;
    const StepDone got = through_stage(sent);
    ASSERT_TRUE(got.loss.has_value());
    EXPECT_EQ(std::memcmp(&*got.loss, &value, sizeof value), 0) << value;
    EXPECT_FALSE(got.grad_norm.has_value());
  }
}

TEST(ControlMessage, BoundaryMetricsKeepUnknownValues) {
  trace::BoundaryMetrics known;
  known.boundary = "0.0>1.0";
  known.direction = "forward";
  known.raw_bytes = std::numeric_limits<std::uint64_t>::max();
  known.sent_bytes = 2;
  known.change = 0.1;
  known.error = 1e-300;
  known.cache_bytes = 3;
  known.hits = 4;
  known.cache_misses = 5;
  known.evictions = 6;
  known.resends = 7;
  trace::BoundaryMetrics unknown = known;
  unknown.change = std::nullopt;
  unknown.error = std::nullopt;
  StepDone sent;
  sent.boundaries = {known, unknown};
  sent.sync = {{"1.0", 3, 1000, 117'000, 0.5, 0.25}};
  EXPECT_EQ(through_stage(sent).boundaries, sent.boundaries);
  EXPECT_EQ(through_stage(sent).sync, sent.sync);
}

TEST(ControlMessage, NanLossIsNotAbsentLoss) {
  StepDone sent;
  sent.loss = std::numeric_limits<double>::quiet_NaN();
  const StepDone got = through_stage(sent);
  ASSERT_TRUE(got.loss.has_value());
  EXPECT_TRUE(std::isnan(*got.loss));
}

TEST(ControlMessage, EveryStageMessageReadsBack) {
  const Hello hello = through_stage(Hello{{1, 0}, 4711, "host b", "0.1.0-abc"});
  EXPECT_EQ(hello.process, (net::ProcessName{1, 0}));
  EXPECT_EQ(hello.pid, 4711);
  EXPECT_EQ(hello.host, "host b");
  EXPECT_EQ(hello.build, "0.1.0-abc");
  const Ready ready = through_stage(Ready{{{"boundary 0>1", "tcp://127.0.0.1:4000"}}, 3});
  EXPECT_EQ(ready.admission, 3U);
  EXPECT_EQ(ready.endpoints.at("boundary 0>1"), "tcp://127.0.0.1:4000");
  EXPECT_EQ(through_stage(Evaluated{store::Step{7}, 0.5, 99}).tokens, 99);
  const ShardsWritten shards =
      through_stage(ShardsWritten{store::Step{8}, {{"stage-0.replica-0.safetensors", 123, "ab"}}});
  ASSERT_EQ(shards.files.size(), 1U);
  EXPECT_EQ(shards.files[0], (store::ShardFile{"stage-0.replica-0.safetensors", 123, "ab"}));
  const ShardsWritten failed = through_stage(ShardsWritten{.step = store::Step{8},
                                                           .epoch = 3,
                                                           .in_memory = true,
                                                           .failed = true,
                                                           .problem = "full",
                                                           .code = base::ExitCode::storage_full});
  EXPECT_EQ(failed.epoch, 3U);
  EXPECT_TRUE(failed.in_memory);
  EXPECT_TRUE(failed.failed);
  EXPECT_EQ(failed.problem, "full");
  EXPECT_EQ(failed.code, base::ExitCode::storage_full);
  EXPECT_EQ(through_stage(Event{"reconnected", "after 2 s"}).text, "after 2 s");
  EXPECT_EQ(through_stage(Ended{base::ExitCode::numeric, "NaN"}).code, base::ExitCode::numeric);
  EXPECT_EQ(through_stage(Ended{}).code, base::ExitCode::done);
  EXPECT_TRUE(through_stage(Ended{base::ExitCode::peer_lost, "", true}).orphaned);
  const InferenceAnswer chosen = through_stage(InferenceAnswer{4, {{1, 2, {{-1, 3, -0.5}}}}});
  EXPECT_EQ(chosen.number, 4);
  ASSERT_EQ(chosen.tokens.size(), 1U);
  EXPECT_EQ(chosen.tokens[0].scores.at(0).likeliest, 3);
  EXPECT_EQ(chosen.loss_sum, std::nullopt);
  EXPECT_EQ(through_stage(InferenceAnswer{4, {}, 0.5}).loss_sum, 0.5);
}

TEST(ControlMessage, EveryCoordinatorMessageReadsBack) {
  EXPECT_EQ(through_coordinator(Peers{{{"a", "b"}}}).endpoints.at("a"), "b");
  EXPECT_TRUE(through_coordinator(AfterStep{.stop = true}).stop);
  EXPECT_EQ(through_coordinator(AfterStep{.save = 7}).save, 7U);
  const CheckpointDecided complete = through_coordinator(CheckpointDecided{store::Step{4}});
  EXPECT_EQ(complete.step, store::Step{4});
  EXPECT_EQ(complete.dropped, std::nullopt);
  EXPECT_EQ(complete.arrives, std::nullopt);
  EXPECT_FALSE(complete.in_memory);
  const CheckpointDecided lets_in = through_coordinator(
      CheckpointDecided{.step = store::Step{4}, .epoch = 2, .arrives = 1, .next_epoch = 3});
  EXPECT_EQ(lets_in.epoch, 2U);
  EXPECT_EQ(lets_in.arrives, 1U);
  EXPECT_EQ(lets_in.next_epoch, 3U);
  const Admit admit =
      through_coordinator(Admit{5, 2, {{"0.2", "key"}}, {{"consensus 0.0~0.2", "127.0.0.1"}}});
  EXPECT_EQ(admit.number, 5U);
  EXPECT_EQ(admit.replica, 2U);
  EXPECT_EQ(admit.keys.at("0.2"), "key");
  EXPECT_EQ(admit.binds.at("consensus 0.0~0.2"), "127.0.0.1");
  const CheckpointDecided again =
      through_coordinator(CheckpointDecided{store::Step{4}, 3, "one left", true, true});
  EXPECT_EQ(again.dropped, "one left");
  EXPECT_TRUE(again.in_memory);
  EXPECT_TRUE(again.again);
  EXPECT_EQ(again.epoch, 3U);
  const Regroup regroup = through_coordinator(Regroup{4, {0, 2, 4'000'000'000}});
  EXPECT_EQ(regroup.epoch, 4U);
  EXPECT_EQ(regroup.replicas, (std::vector<std::uint32_t>{0, 2, 4'000'000'000}));
  EXPECT_EQ(through_stage(LostReplica{2, "its link is dead"}).replica, 2U);
  const Abort abort =
      through_coordinator(Abort{base::ExitCode::stalled, "stuck", "stage 1.0 (host b)"});
  EXPECT_EQ(abort.code, base::ExitCode::stalled);
  EXPECT_EQ(abort.origin, "stage 1.0 (host b)");
}

TEST(ControlMessage, ErrorNamesMissingField) {
  EXPECT_EQ(refusal(R"({"type":"event"})"), "control message event: field name is missing");
  EXPECT_THAT(refusal(R"({"step":3})"), HasSubstr("field type is missing"));
}

TEST(ControlMessage, RefusesUnknownTypesAndFields) {
  EXPECT_THAT(refusal(R"({"type":"surprise"})"), HasSubstr("unknown type \"surprise\""));
  EXPECT_THAT(refusal(R"({"type":"event","name":"a","text":"b","more":2})"),
              HasSubstr("field more is unknown"));
  // Messages of the coordinator are not valid from a stage.
  EXPECT_THAT(refusal(R"({"type":"stop_after_step"})"), HasSubstr("unknown type"));
}

TEST(ControlMessage, ErrorNamesFieldOfWrongTypeOrRange) {
  EXPECT_THAT(refusal(R"({"type":"shards_written","step":"3"})"),
              HasSubstr("step is not a whole number"));
  EXPECT_THAT(refusal(R"({"type":"shards_written","step":-1})"),
              HasSubstr("step is not a whole number from 0"));
  EXPECT_THAT(refusal(R"({"type":"shards_written","step":1.5})"),
              HasSubstr("step is not a whole number"));
  EXPECT_THAT(refusal(R"({"type":"shards_written","step":18446744073709551615})"),
              HasSubstr("step is not a whole number"));
  EXPECT_THAT(refusal(R"({"type":"ended","code":700,"text":""})"),
              HasSubstr("code is not a whole number up to 255"));
  EXPECT_THAT(refusal(R"({"type":"hello","process":"x","pid":1,"host":"","build":""})"),
              HasSubstr("process is not the name of a process"));
  EXPECT_THAT(refusal(R"({"type":"ready","endpoints":{"a":1}})"),
              HasSubstr("endpoints: field a is not a text"));
  EXPECT_THAT(refusal(R"({"type":"shards_written","step":1,"files":[3]})"),
              HasSubstr("files is not a list of objects"));
  EXPECT_THAT(refusal(R"({"type":"shards_written","step":1,"files":[{"name":"a","hash":"b"}]})"),
              HasSubstr("files: field size is missing"));
}

TEST(ControlMessage, ChecksLimitsBeforeAllocating) {
  EXPECT_THAT(refusal(std::string(20 << 20, ' ')), HasSubstr("at most"));
  EXPECT_THAT(refusal(std::string(10'000, '[')), HasSubstr("not JSON"));
  const std::string huge(100 << 10, 'x');
  EXPECT_THAT(refusal(R"({"type":"event","name":"a","text":")" + huge + "\"}"),
              HasSubstr("not JSON"));
}

TEST(ControlMessage, TruncatesTextToLimitsOfReceiver) {
  const std::string noise(200 << 10, '\xff');  // not UTF-8
  const Ended got = through_stage(Ended{base::ExitCode::internal, noise});
  EXPECT_FALSE(got.text.empty());
  EXPECT_EQ(through_stage(Ended{base::ExitCode::internal, "quote \" and \n and \x01"}).text,
            "quote \" and \n and \x01");
}

TEST(ControlMessage, RefusesDamagedFrames) {
  const std::random_device::result_type seed = std::random_device{}();
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937_64 random(seed);
  Progress progress;
  progress.phase = "forward";
  progress.links = {{"boundary 0>1", "stage 1.0", 12, 34}};
  const std::string good = text_of(format(StageMessage(progress)));
  int refused = 0;
  for (int i = 0; i < 3000; ++i) {
    std::string bad = good;
    switch (random() % 3) {
      case 0:
        bad.resize(random() % good.size());
        break;
      case 1:
        bad[random() % bad.size()] = static_cast<char>(random());
        break;
      default:
        bad.insert(random() % bad.size(), 1, static_cast<char>(random()));
    }
    try {
      parse_stage_message(frame_of(bad));
    } catch (const base::MessageError&) {
      ++refused;
    }
  }
  EXPECT_GT(refused, 1500);
}

}  // namespace
}  // namespace strait::run
