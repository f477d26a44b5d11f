#include "launcher/hosts/agent_message.h"

#include <gtest/gtest.h>

#include <random>

namespace strait::hosts {
namespace {

const std::string kHash(transfer::ChunkTable::kDigits, 'a');
const transfer::ChunkTable kTable{transfer::ChunkTable::kChunkBytes + 1, kHash, kHash + kHash};

std::vector<LauncherMessage> launcher_messages() {
  return {
      End{net::ProcessName{0, 1}},
      StartProcess{{0, 1}, "{}"},
      OpenPort{{"10.0.0.1"}, {{1, "key"}}, 4},
      TryPaths{{{1, "tcp://10.0.0.1:1"}}, 3, 60},
      MeasureFlow{1, {"tcp://10.0.0.1:1"}, 4},
      MeasureCompute{"{}", 2, 128, 4, true},
      JoinRelay{"token", "tcp://10.0.0.1:1", "tcp://127.0.0.1:2"},
      transfer::Stat{"/run/shard"},
      transfer::Fetch{kTable, {{0, 2}}, "/run/tokens", net::ProcessName::host_agent(1)},
      transfer::Put{"/run/manifest.json", "{}"},
      transfer::Prune{"/run", {store::Step{100}, store::Step{200}}, store::Step{300}},
      transfer::LinkWith{net::ProcessName::host_agent(1), "key", "alice@b", "tcp://10.0.0.2:1"}};
}

std::vector<AgentMessage> agent_messages() {
  return {AgentHello{}, ProcessReport{{0, 1}, "line\n", 3, {}}, Goodbye{true}};
}

std::string text_of(const net::Frame& frame) {
  return {reinterpret_cast<const char*>(frame.data()), frame.size()};
}

template <class Message, class Parse>
void expect_round_trips(const std::vector<Message>& messages, Parse parse) {
  ASSERT_EQ(messages.size(), std::variant_size_v<Message>);
  for (const Message& message : messages) {
    const net::Frame frame = format(message);
    const Message back = parse(frame);
    EXPECT_EQ(back.index(), message.index());
    EXPECT_EQ(text_of(format(back)), text_of(frame));
  }
}

template <class Reply>
void expect_reply_round_trips(const Reply& reply) {
  using Frames = ReplyFrame<Reply>;
  const std::variant<Failure, Reply> failed = Failure{base::ExitCode::storage_full, "no room"};
  for (const auto& either : {failed, std::variant<Failure, Reply>(reply)}) {
    const net::Frame frame = Frames::format(either);
    EXPECT_EQ(Frames::parse(frame).index(), either.index());
    EXPECT_EQ(text_of(Frames::format(Frames::parse(frame))), text_of(frame));
  }
}

TEST(AgentMessage, EveryTypeRoundTrips) {
  expect_round_trips(launcher_messages(), parse_launcher_message);
  expect_round_trips(agent_messages(), parse_agent_message);
  expect_reply_round_trips(ProcessStarted{7});
  expect_reply_round_trips(PortOpened{{{"eth0", {"tcp://10.0.0.1:1"}}}, {"cannot listen"}});
  expect_reply_round_trips(PathsTried{{{"", 0.5}, {"no answer", 0}}});
  expect_reply_round_trips(FlowMeasured{1e6});
  expect_reply_round_trips(ComputeMeasured{1e9, 2, 1e10, {8}});
  expect_reply_round_trips(ListensAt{"tcp://10.0.0.1:47003"});
  expect_reply_round_trips(transfer::Done{12345});
  expect_reply_round_trips(kTable);
}

TEST(AgentMessage, NumberIsInFrontOfTheMessage) {
  const net::Frame message = format(Goodbye{true});
  const net::Frame frame = with_number(0x0102030405060708, message);
  ASSERT_EQ(frame.size(), message.size() + 8);
  EXPECT_EQ(frame.front(), std::byte{8}) << "little-endian";
  EXPECT_EQ(take_number(frame).number, 0x0102030405060708);
  EXPECT_TRUE(std::ranges::equal(take_number(frame).message, message));
  EXPECT_THROW(take_number(std::span(frame).first(7)), base::MessageError);
}

TEST(AgentMessage, RefusesMalformedMessages) {
  const auto refuses = [](std::string_view text) {
    const auto message = std::as_bytes(std::span(text));
    EXPECT_THROW(parse_agent_message(message), base::MessageError) << text;
    EXPECT_EQ(ReplyFrame<transfer::Done>::parse(message).index(), 0U) << text;
    EXPECT_EQ(ReplyFrame<transfer::ChunkTable>::parse(message).index(), 0U) << text;
  };
  refuses("{");
  refuses(R"({"type": "none"})");
  refuses(R"({"type": "reply", "fetched": -1})");
  refuses(R"({"type": "reply", "fetched": 1, "number": 1})");
  refuses(text_of(ReplyFrame<transfer::ChunkTable>::format(
      transfer::ChunkTable{std::uint64_t{1} << 60, kHash, kHash})));
  const net::Frame lying = format(transfer::Fetch{{1, kHash, ""}, {}, "/run/tokens", {}});
  EXPECT_THROW(parse_launcher_message(lying), base::MessageError);
}

// A damaged message is refused, or read as one that is written and read back the same.
TEST(AgentMessage, RefusesDamagedFramesOrReadsThemExactly) {
  std::mt19937_64 generator(7);
  const auto messages = agent_messages();
  int refused = 0;
  for (int round = 0; round < 5'000; ++round) {
    net::Frame frame = format(messages[generator() % messages.size()]);
    for (std::uint64_t hits = 1 + generator() % 3; hits > 0; --hits) {
      frame[generator() % frame.size()] = static_cast<std::byte>(generator());
    }
    try {
      const net::Frame again = format(parse_agent_message(frame));
      EXPECT_EQ(text_of(format(parse_agent_message(again))), text_of(again));
    } catch (const base::MessageError&) {
      ++refused;
    }
  }
  EXPECT_GT(refused, 1000);
}

}  // namespace
}  // namespace strait::hosts
