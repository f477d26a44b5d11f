#include "framework/fields/byte_fields.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace strait::fields {
namespace {

enum class Level : std::uint8_t { low, high };

struct Run {
  std::uint32_t first = 0;
  std::uint32_t count = 0;
};

struct Packet {
  std::string id;
  std::uint64_t command = 0;
  bool force = false;
  Level code = Level::low;
  std::string path;
  std::vector<Run> runs;
  std::vector<std::pair<std::string, std::uint8_t>> terms;
  std::vector<std::byte> content;
};

void describe(auto& f, Is<Run> auto& m) { f("first", m.first), f("count", m.count); }
void describe(auto& f, Is<Packet> auto& m) {
  f("id", exactly(m.id, 2)), f("command", m.command), f("force", m.force), f("code", m.code);
  f("path", at_most(m.path, 4)), f("runs", m.runs), f("terms", at_most(m.terms, 2)),
      f("content", rest(m.content, 3));
}

std::vector<std::byte> written(const Packet& packet) {
  return to_bytes<std::vector<std::byte>>(packet);
}

Packet read(std::span<const std::byte> bytes) { return from_bytes<Packet>(bytes, "packet"); }

const Packet kPacket{"ab",          7, true, Level::high, "c/d", {{1, 2}, {3, 4}}, {{"t", 1}},
                     {std::byte{9}}};

TEST(ByteFields, ReadsBackWhatItWrote) {
  const std::vector<std::byte> frame = written(kPacket);
  EXPECT_EQ(frame.size(), 2U + 8 + 1 + 1 + 4 + 3 + 4 + 16 + 4 + 6 + 1);
  const Packet packet = read(frame);
  EXPECT_EQ(packet.code, Level::high);
  EXPECT_EQ(packet.path, "c/d");
  EXPECT_EQ(packet.runs.back().count, 4U);
  EXPECT_EQ(written(packet), frame);
}

TEST(ByteFields, RefusesEveryTruncation) {
  const std::vector<std::byte> frame = written(kPacket);
  for (std::size_t size = 0; size < frame.size(); ++size) {
    EXPECT_THROW(read(std::span(frame).first(size)), MessageError) << size;
  }
}

TEST(ByteFields, RefusesValuesBeyondTheirLimits) {
  Packet packet = kPacket;
  packet.content.resize(4);
  EXPECT_THROW(read(written(packet)), MessageError);
  packet = kPacket;
  packet.terms.resize(3);
  EXPECT_THROW(read(written(packet)), MessageError);
  packet = kPacket;
  packet.path = "longer";
  EXPECT_EQ(read(written(packet)).path, "long");
  std::vector<std::byte> frame = written(kPacket);
  frame[10] = std::byte{2};  // the flag
  EXPECT_THROW(read(frame), MessageError);
}

}  // namespace
}  // namespace strait::fields
