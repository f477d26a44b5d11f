#include "launcher/transfer/transfer_message.h"

#include <gtest/gtest.h>

#include <random>

namespace strait::transfer::message {
namespace {

const std::string kId(ChunkTable::kDigits, 'a');
const ChunkTable kTable{ChunkTable::kChunkBytes + 1, kId, kId + kId};

std::vector<Message> one_of_each() {
  return {Get{kId, 5},
          Chunk{kId, 5, {std::byte{1}, std::byte{2}}},
          Missing{kId, 5},
          Wait{},
          Stat{1, "/run/shard"},
          Fetch{2, kTable, {{0, 2}}, "/run/tokens", "agent.1"},
          Put{3, "/run/manifest.json", "{}"},
          Prune{5, "/run", {100, 200}},
          Rewind{6, "/run", 100},
          Accept{7, "agent.2", "key"},
          Connect{"agent.1", "alice@b", "tcp://10.0.0.2:47003", "key"},
          Table{1, kTable},
          Accepting{7, "tcp://10.0.0.1:47003"},
          Done{2, 12345},
          Failed{4, base::ExitCode::storage_full, "no room"}};
}

TEST(TransferMessage, EveryKindRoundTrips) {
  ASSERT_EQ(one_of_each().size(), std::variant_size_v<Message>);
  for (const Message& message : one_of_each()) {
    const net::Frame frame = format(message);
    const Message back = parse_message(frame);
    EXPECT_EQ(back.index(), message.index());
    EXPECT_EQ(format(back), frame);
  }
}

TEST(TransferMessage, MatchesBytesInReadme) {
  const net::Frame frame = format(Get{kId, 0x01020304});
  const std::string expected = std::string(1, '\0') + kId + std::string("\4\3\2\1", 4);
  EXPECT_EQ(std::string(reinterpret_cast<const char*>(frame.data()), frame.size()), expected);
}

TEST(TransferMessage, ChunkFrameIsWrittenInPlace) {
  std::span<std::byte> content;
  net::Frame frame = chunk_frame(kId, 3, 2, content);
  ASSERT_EQ(content.size(), 2U);
  content[0] = std::byte{8};
  content[1] = std::byte{9};
  EXPECT_EQ(frame, format(Chunk{kId, 3, {std::byte{8}, std::byte{9}}}));
}

TEST(TransferMessage, RefusesImpossibleCountsBeforeAllocation) {
  net::Frame frame = format(Prune{5, "/run", {}});
  for (std::size_t byte = frame.size() - 4; byte < frame.size(); ++byte)
    frame[byte] = std::byte{0xff};
  EXPECT_THROW(parse_message(frame), base::MessageError);
  ChunkTable lying = kTable;
  lying.size = std::uint64_t{1} << 60;
  EXPECT_THROW(parse_message(format(Table{1, lying})), base::MessageError);
}

// A damaged frame is refused, or parses to a message that formats to the same bytes.
TEST(TransferMessage, RefusesDamagedFramesOrReadsThemExactly) {
  std::mt19937_64 generator(7);
  int refused = 0;
  for (int round = 0; round < 20'000; ++round) {
    const auto messages = one_of_each();
    net::Frame frame = format(messages[generator() % messages.size()]);
    for (std::uint64_t hits = 1 + generator() % 3; hits > 0; --hits) {
      frame[generator() % frame.size()] = static_cast<std::byte>(generator());
    }
    if (generator() % 4 == 0) frame.resize(generator() % frame.size());
    try {
      EXPECT_EQ(format(parse_message(frame)), frame);
    } catch (const base::MessageError&) {
      ++refused;
    }
  }
  EXPECT_GT(refused, 1000);
}

}  // namespace
}  // namespace strait::transfer::message
