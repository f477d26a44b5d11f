// The bytes on the wire: what is written is read back, and no bytes at all do harm.
#include "framework/net/wire_format.h"

#include <gtest/gtest.h>

#include <cstring>
#include <random>

#include "tests/framework/net/link_pair.h"
#include "tests/framework/net/reseal.h"

namespace strait::net {
namespace {

using Message = std::vector<std::byte>;

MessageHeader fragment_header() {
  MessageHeader header;
  header.kind = MessageKind::fragment;
  header.flows = 0b101;
  header.wanted_flows = 2;
  header.generation = 3;
  header.run = *RunId::parse("00112233445566778899aabbccddeeff");
  header.position = {7, 1 << 20};
  header.frame_length = (1 << 20) + 4;
  header.frame_hash = {0x0123456789abcdef, 0xfedcba9876543210};
  header.received = {5, 0};
  header.taken = 4;
  header.arrived = 1'500'000'000;
  header.attempt = 2;
  return header;
}

Message sealed(const MessageHeader& header, std::size_t payload) {
  Message message(kHeaderBytes + payload, std::byte{0x61});
  seal(header, message);
  return message;
}

template <typename Value>
void put(Message& message, std::size_t at, Value value) {
  std::memcpy(message.data() + at, &value, sizeof value);
}

TEST(WireFormatTest, WhatIsSealedIsReadBack) {
  const Message message = sealed(fragment_header(), 4);
  const Parsed parsed = parse_message(message);
  ASSERT_EQ(parsed.fault, WireFault::none);
  EXPECT_EQ(parsed.header.flows, 0b101);
  EXPECT_EQ(parsed.header.wanted_flows, 2);
  EXPECT_EQ(parsed.header.generation, 3u);
  EXPECT_EQ(parsed.header.run, fragment_header().run);
  EXPECT_EQ(parsed.header.position, fragment_header().position);
  EXPECT_EQ(parsed.header.frame_length, fragment_header().frame_length);
  EXPECT_EQ(parsed.header.frame_hash, fragment_header().frame_hash);
  EXPECT_EQ(parsed.header.received, fragment_header().received);
  EXPECT_EQ(parsed.header.taken, 4u);
  EXPECT_EQ(parsed.header.arrived, 1'500'000'000u);
  EXPECT_EQ(parsed.header.attempt, 2u);
  EXPECT_EQ(parsed.payload.size(), 4u);
}

// The example of WIRE.md, byte by byte: other implementations read that page, not this code.
TEST(WireFormatTest, ExampleOfThePageIsWhatIsWritten) {
  const Message message = sealed(fragment_header(), 4);
  const std::string expected =
      "53545254fbb7e6a5"
      "0404050203000000"
      "00112233445566778899aabbccddeeff"
      "0700000000000000"
      "0000100000000000"
      "0400100000000000"
      "efcdab8967452301"
      "1032547698badcfe"
      "0500000000000000"
      "0000000000000000"
      "0400000000000000"
      "002f685900000000"
      "0200000004000000"
      "61616161";
  std::string written;
  for (const std::byte byte : message) {
    constexpr const char* kDigits = "0123456789abcdef";
    written += kDigits[static_cast<unsigned>(byte) >> 4];
    written += kDigits[static_cast<unsigned>(byte) & 15];
  }
  EXPECT_EQ(written, expected);
}

TEST(WireFormatTest, EveryFlippedBitAndEveryTruncationIsFound) {
  const Message message = sealed(fragment_header(), 40);
  for (std::size_t bit = 0; bit < message.size() * 8; ++bit) {
    Message flipped = message;
    flipped[bit / 8] ^= static_cast<std::byte>(1 << bit % 8);
    ASSERT_NE(parse_message(flipped).fault, WireFault::none) << "bit " << bit;
  }
  for (std::size_t size = 0; size < message.size(); ++size) {
    const Message shorter(message.begin(), message.begin() + static_cast<std::ptrdiff_t>(size));
    ASSERT_NE(parse_message(shorter).fault, WireFault::none) << "size " << size;
  }
}

TEST(WireFormatTest, DistinguishesOtherVersionFromDamage) {
  Message message = sealed(fragment_header(), 4);
  message[8] = std::byte{9};
  EXPECT_EQ(parse_message(message).fault, WireFault::damaged);
  reseal(message);
  const Parsed parsed = parse_message(message);
  EXPECT_EQ(parsed.fault, WireFault::other_version);
  EXPECT_EQ(parsed.version, 9);
}

TEST(WireFormatTest, FramesBeyondTheLimitAreRefused) {
  EXPECT_NO_THROW(check_frame_size(kMaxFrameBytes));
  EXPECT_THROW(check_frame_size(kMaxFrameBytes + 1), std::invalid_argument);
}

TEST(WireFormatTest, RejectsLengthsBeyondLimits) {
  const auto fault_of = [](const MessageHeader& header, std::size_t payload) {
    return parse_message(sealed(header, payload)).fault;
  };
  MessageHeader header = fragment_header();
  header.frame_length = kMaxFrameBytes + 1;
  EXPECT_EQ(fault_of(header, 4), WireFault::lying);
  header = fragment_header();
  EXPECT_EQ(fault_of(header, 5), WireFault::lying) << "beyond the end of its frame";
  header.position.offset = header.frame_length + 1;
  EXPECT_EQ(fault_of(header, 4), WireFault::lying) << "begins after the end of its frame";
  header = fragment_header();
  EXPECT_EQ(fault_of(header, 0), WireFault::lying) << "a fragment that moves nothing";
  header = fragment_header();
  header.position.offset = 0;
  header.frame_length = 64 << 20;
  EXPECT_EQ(fault_of(header, kMaxFragmentBytes + 1), WireFault::lying);
  header = MessageHeader{};
  EXPECT_EQ(fault_of(header, 1), WireFault::lying) << "a status carries nothing";
  header.arrived = kMaxArrived;
  EXPECT_EQ(fault_of(header, 0), WireFault::none);
  header.arrived = kMaxArrived + 1;
  EXPECT_EQ(fault_of(header, 0), WireFault::lying) << "no clock has run for so long";
  Message unknown = sealed(MessageHeader{}, 0);
  unknown[9] = std::byte{99};
  reseal(unknown);
  EXPECT_EQ(parse_message(unknown).fault, WireFault::lying);
  Message longer = sealed(fragment_header(), 4);
  put(longer, 108, std::uint32_t{3});
  reseal(longer);
  EXPECT_EQ(parse_message(longer).fault, WireFault::truncated);
}

TEST(WireFormatTest, RandomBytesAreHarmless) {
  constexpr std::uint64_t kSeed = 20240607;
  SCOPED_TRACE("seed " + std::to_string(kSeed));
  std::mt19937_64 random(kSeed);
  for (int i = 0; i < 20'000; ++i) {
    Message message(random() % 300);
    for (std::byte& byte : message) byte = static_cast<std::byte>(random());
    // Half of them get past the magic and the check, so that the code after these is reached too.
    if (message.size() > kHeaderBytes && i % 2 == 0) {
      put(message, 0, kMagic);
      message[8] = std::byte{kProtocolVersion};
      reseal(message);
    }
    const Parsed parsed = parse_message(message);
    const std::size_t payload = parsed.fault == WireFault::none ? parsed.payload.size() : 0;
    EXPECT_LE(payload, message.size());
    decode_hello(message);
  }
}

TEST(HelloTest, WhatIsEncodedIsDecodedAndEveryTruncationIsRefused) {
  Hello hello;
  hello.name = kRight;
  hello.incarnation = 77;
  hello.peer_incarnation = 88;
  hello.fragment_bytes = 1000;
  hello.terms = {{"codec", "delta 4/8"}, {"empty", ""}, {"plan", "1f"}};
  const std::vector<std::byte> bytes = encode_hello(hello);
  const auto decoded = decode_hello(bytes);
  ASSERT_TRUE(decoded);
  EXPECT_EQ(decoded->name, hello.name);
  EXPECT_EQ(decoded->incarnation, 77u);
  EXPECT_EQ(decoded->peer_incarnation, 88u);
  EXPECT_EQ(decoded->fragment_bytes, 1000u);
  EXPECT_EQ(decoded->terms, hello.terms);
  for (std::size_t size = 0; size < bytes.size(); ++size) {
    EXPECT_FALSE(decode_hello(std::span(bytes).first(size))) << "size " << size;
  }
}

TEST(HelloTest, LyingCountsAndLengthsAllocateNothing) {
  std::vector<std::byte> bytes = encode_hello({});
  put(bytes, bytes.size() - 4, std::uint32_t{0xFFFFFFFF});
  EXPECT_FALSE(decode_hello(bytes));
  Hello one;
  one.terms = {{"k", "v"}};
  bytes = encode_hello(one);
  put(bytes, 36, std::uint32_t{0xFFFFFFFF});  // the length of the key
  EXPECT_FALSE(decode_hello(bytes));
}

}  // namespace
}  // namespace strait::net
