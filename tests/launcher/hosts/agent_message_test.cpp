#include "launcher/hosts/agent_message.h"

#include <gtest/gtest.h>

#include <random>

namespace strait::hosts {
namespace {

const std::string kHash(transfer::ChunkTable::kDigits, 'a');
const transfer::ChunkTable kTable{transfer::ChunkTable::kChunkBytes + 1, kHash, kHash + kHash};

std::vector<LauncherMessage> launcher_messages() {
  return {
      EndProcess{{0, 1}},
      Leave{},
      StartProcess{{0, 1}, "{}"},
      OpenPort{{"10.0.0.1"}, {{1, "key"}}, 4},
      TryPaths{{{1, "tcp://10.0.0.1:1"}}, 3, 60},
      SendFlow{1, {"tcp://10.0.0.1:1"}, 4},
      ReceiveFlow{0, {"tcp://10.0.0.1:1"}},
      MeasureCompute{"{}", 2, 128, 4, true},
      DialRelay{"token", "tcp://10.0.0.1:1"},
      BindRelay{"token", "tcp://10.0.0.1:1", "tcp://127.0.0.1:2"},
      transfer::Stat{"/run/shard"},
      transfer::Fetch{kTable, {{0, 2}}, "/run/tokens", net::ProcessName::host_agent(1)},
      transfer::Put{"/run/manifest.json", "{}"},
      transfer::Prune{"/run", {store::Step{100}, store::Step{200}}},
      transfer::Rewind{"/run", store::Step{100}},
      transfer::Accept{net::ProcessName::host_agent(2), "key"},
      transfer::Connect{net::ProcessName::host_agent(1), "alice@b", "tcp://10.0.0.2:47003", "key"}};
}

std::vector<AgentMessage> agent_messages() {
  return {AgentHello{},
          ProcessEnded{{0, 1}, 3, {}},
          LogText{{0, 1}, "line\n"},
          Goodbye{true},
          Failure{base::ExitCode::storage_full, "no room"},
          Done{12345},
          ListensAt{"tcp://10.0.0.1:47003"},
          ProcessStarted{7},
          PortOpened{{{"eth0", {"tcp://10.0.0.1:1"}}}, {"cannot listen"}},
          PathsTried{{{"", 0.5}, {"no answer", 0}}},
          FlowMeasured{1e6},
          ComputeMeasured{1e9, 2, 1e10, {8}},
          kTable};
}

std::string text_of(const net::Frame& frame) {
  return {reinterpret_cast<const char*>(frame.data()), frame.size()};
}

template <class Message, class Parse>
void expect_round_trips(const std::vector<Message>& messages, Parse parse) {
  ASSERT_EQ(messages.size(), std::variant_size_v<Message>);
  std::uint64_t number = 0;  // the first has none
  for (const Message& message : messages) {
    const net::Frame frame = format(message, number);
    const Numbered<Message> back = parse(frame);
    EXPECT_EQ(back.number, number);
    EXPECT_EQ(back.content.index(), message.index());
    EXPECT_EQ(text_of(format(back.content, number)), text_of(frame));
    ++number;
  }
}

TEST(AgentMessage, EveryTypeRoundTrips) {
  expect_round_trips(launcher_messages(), parse_launcher_message);
  expect_round_trips(agent_messages(), parse_agent_message);
}

TEST(AgentMessage, RefusesMalformedMessages) {
  const auto refuses = [](std::string_view text) {
    EXPECT_THROW(parse_agent_message(std::as_bytes(std::span(text))), base::MessageError) << text;
  };
  refuses("{");
  refuses(R"({"type": "none"})");
  refuses(R"({"type": "done", "fetched": 1, "number": 0})");
  refuses(R"({"type": "done", "fetched": 1, "number": -1})");
  refuses(R"({"type": "done", "fetched": 1, "number": "1"})");
  refuses(R"({"type": "done", "fetched": 1, "numbers": 1})");
  refuses(text_of(format(transfer::ChunkTable{std::uint64_t{1} << 60, kHash, kHash})));
  const net::Frame lying = format(transfer::Fetch{{1, kHash, ""}, {}, "/run/tokens", {}});
  EXPECT_THROW(parse_launcher_message(lying), base::MessageError);
}

// A damaged frame is refused, or read as a message that is written and read back the same.
TEST(AgentMessage, RefusesDamagedFramesOrReadsThemExactly) {
  std::mt19937_64 generator(7);
  const auto messages = agent_messages();
  int refused = 0;
  for (int round = 0; round < 5'000; ++round) {
    net::Frame frame = format(messages[generator() % messages.size()], generator() % 3);
    for (std::uint64_t hits = 1 + generator() % 3; hits > 0; --hits) {
      frame[generator() % frame.size()] = static_cast<std::byte>(generator());
    }
    try {
      const auto first = parse_agent_message(frame);
      const net::Frame again = format(first.content, first.number);
      const auto second = parse_agent_message(again);
      EXPECT_EQ(text_of(format(second.content, second.number)), text_of(again));
    } catch (const base::MessageError&) {
      ++refused;
    }
  }
  EXPECT_GT(refused, 1000);
}

}  // namespace
}  // namespace strait::hosts
