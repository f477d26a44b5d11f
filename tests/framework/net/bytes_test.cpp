#include "framework/bytes.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <random>
#include <vector>

namespace strait {
namespace {

TEST(Bytes, AreLittleEndianWithoutPadding) {
  std::vector<std::byte> bytes;
  append_value(bytes, std::uint8_t{1});
  append_value(bytes, std::uint32_t{0x04030201});
  append_text(bytes, "ab");
  const std::vector<int> expected{1, 1, 2, 3, 4, 2, 0, 0, 0, 'a', 'b'};
  ASSERT_EQ(bytes.size(), expected.size());
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    EXPECT_EQ(std::to_integer<int>(bytes[i]), expected[i]) << i;
  }
}

TEST(Bytes, WriterFillsMemoryInOrder) {
  std::array<std::byte, 6> memory{};
  ByteWriter writer(memory);
  writer.value(std::uint16_t{0x0201});
  EXPECT_EQ(writer.left(), 4U);
  writer.value(std::uint32_t{0x06050403});
  EXPECT_EQ(writer.left(), 0U);
  for (std::size_t i = 0; i < memory.size(); ++i) {
    EXPECT_EQ(std::to_integer<std::size_t>(memory[i]), i + 1);
  }
}

TEST(Bytes, EverythingWrittenReadsBack) {
  const unsigned seed = std::random_device()();
  std::mt19937 random(seed);
  for (int round = 0; round < 200; ++round) {
    const auto number = static_cast<std::int64_t>(random()) << 20;
    const double real = static_cast<double>(random()) / 7;
    const std::string text(random() % 50, 'x');
    std::vector<std::byte> bytes;
    append_value(bytes, number);
    append_text(bytes, text);
    append_value(bytes, real);
    ByteReader reader(bytes);
    EXPECT_EQ(reader.value<std::int64_t>(), number) << seed;
    EXPECT_EQ(reader.text(), text) << seed;
    EXPECT_EQ(reader.value<double>(), real) << seed;
    EXPECT_TRUE(reader.complete()) << seed;
  }
}

TEST(Bytes, EveryTruncationFailsAndStaysFailed) {
  std::vector<std::byte> bytes;
  append_value(bytes, std::uint32_t{7});
  append_text(bytes, "text");
  append_value(bytes, std::uint8_t{1});
  for (std::size_t length = 0; length < bytes.size(); ++length) {
    ByteReader reader(std::span<const std::byte>(bytes).first(length));
    reader.value<std::uint32_t>();
    reader.text();
    EXPECT_EQ(reader.value<std::uint8_t>(), 0) << length;
    EXPECT_TRUE(reader.failed()) << length;
    EXPECT_FALSE(reader.complete()) << length;
    EXPECT_TRUE(reader.bytes(0).empty()) << length;
  }
}

TEST(Bytes, ClaimedLengthSpendsNoMemory) {
  std::vector<std::byte> bytes;
  append_value(bytes, std::uint32_t{0xffffffff});
  ByteReader reader(bytes);
  EXPECT_EQ(reader.text(), "");
  EXPECT_TRUE(reader.failed());
}

}  // namespace
}  // namespace strait
