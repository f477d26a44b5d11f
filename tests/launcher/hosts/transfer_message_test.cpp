#include <gtest/gtest.h>

#include <random>

#include "launcher/hosts/chunk_table.h"
#include "launcher/hosts/transfer_peers.h"

namespace strait::transfer::message {
namespace {

const std::string kId(ChunkTable::kDigits, 'a');

std::vector<Message> one_of_each() {
  return {Get{kId, 5}, Chunk{kId, 5, {std::byte{1}, std::byte{2}}}, Missing{kId, 5}, Wait{}};
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

TEST(TransferMessage, RefusesTooLargeChunks) {
  const std::vector<std::byte> content(ChunkTable::kChunkBytes + 1);
  EXPECT_THROW(parse_message(format(Chunk{kId, 5, content})), base::MessageError);
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
