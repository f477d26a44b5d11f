#include "framework/net/wire_format.h"

#include <xxhash.h>

#include <bit>
#include <cstring>

namespace strait::net {
namespace {

static_assert(std::endian::native == std::endian::little,
              "the wire is little-endian; a big-endian host needs byte swaps in put_at and get_at");

constexpr std::size_t kMagicAt = 0;
constexpr std::size_t kCheckAt = 4;
constexpr std::size_t kVersionAt = 8;
constexpr std::size_t kKindAt = 9;
constexpr std::size_t kZeroAt = 10;
constexpr std::size_t kGenerationAt = 12;
constexpr std::size_t kRunAt = 16;
constexpr std::size_t kPositionAt = 32;
constexpr std::size_t kFrameLengthAt = 48;
constexpr std::size_t kFrameHashAt = 56;
constexpr std::size_t kReceivedAt = 72;
constexpr std::size_t kTakenAt = 88;
constexpr std::size_t kAttemptAt = 96;
constexpr std::size_t kPayloadLengthAt = 100;

template <typename Value>
void put_at(std::span<std::byte> message, std::size_t at, const Value& value) {
  std::memcpy(message.data() + at, &value, sizeof value);
}

template <typename Value>
Value get_at(std::span<const std::byte> message, std::size_t at) {
  Value value;
  std::memcpy(&value, message.data() + at, sizeof value);
  return value;
}

std::uint32_t check_of(std::span<const std::byte> message) {
  const std::span<const std::byte> covered = message.subspan(kVersionAt);
  return static_cast<std::uint32_t>(XXH3_64bits(covered.data(), covered.size()));
}

// Lengths that no honest sender writes, whatever the check says.
bool is_lying(const MessageHeader& header) {
  const std::uint64_t length = header.payload_length;
  switch (header.kind) {
    case MessageKind::chunk: {
      if (length > kMaxChunkBytes || header.frame_length > kMaxFrameBytes) return true;
      if (header.position.offset > header.frame_length) return true;
      if (length > header.frame_length - header.position.offset) return true;
      return length == 0 && header.frame_length != 0;  // such a chunk would move nothing
    }
    case MessageKind::status:
    case MessageKind::resend:
    case MessageKind::bye:
      return length != 0;
    case MessageKind::hello:
    case MessageKind::welcome:
    case MessageKind::refuse:
    case MessageKind::abort:
      return length > kMaxHelloBytes;
  }
  return true;
}

}  // namespace

FrameHash hash_frame(std::span<const std::byte> frame) {
  const XXH128_hash_t hash = XXH3_128bits(frame.data(), frame.size());
  return {hash.low64, hash.high64};
}

void seal(MessageHeader header, std::span<std::byte> message) {
  header.payload_length = static_cast<std::uint32_t>(message.size() - kHeaderBytes);
  put_at(message, kMagicAt, kMagic);
  put_at(message, kVersionAt, kProtocolVersion);
  put_at(message, kKindAt, header.kind);
  put_at(message, kZeroAt, std::uint16_t{0});
  put_at(message, kGenerationAt, header.generation);
  put_at(message, kRunAt, header.run.bytes);
  put_at(message, kPositionAt, header.position);
  put_at(message, kFrameLengthAt, header.frame_length);
  put_at(message, kFrameHashAt, header.frame_hash);
  put_at(message, kReceivedAt, header.received);
  put_at(message, kTakenAt, header.taken);
  put_at(message, kAttemptAt, header.attempt);
  put_at(message, kPayloadLengthAt, header.payload_length);
  put_at(message, kCheckAt, check_of(message));
}

Parsed parse_message(std::span<const std::byte> message) {
  Parsed parsed;
  const auto fail = [&parsed](WireFault fault) {
    parsed.fault = fault;
    return parsed;
  };
  if (message.size() <= kVersionAt) return fail(WireFault::truncated);
  if (get_at<std::uint32_t>(message, kMagicAt) != kMagic) return fail(WireFault::foreign);
  // Magic, check and version keep their places in every version, so that two of them can at least
  // tell each other apart; only an intact message is believed.
  if (get_at<std::uint32_t>(message, kCheckAt) != check_of(message)) {
    return fail(WireFault::damaged);
  }
  parsed.version = get_at<std::uint8_t>(message, kVersionAt);
  if (parsed.version != kProtocolVersion) return fail(WireFault::other_version);
  if (message.size() < kHeaderBytes) return fail(WireFault::truncated);

  MessageHeader& header = parsed.header;
  const auto kind = get_at<std::uint8_t>(message, kKindAt);
  if (kind == 0 || kind > static_cast<std::uint8_t>(kLastKind)) return fail(WireFault::lying);
  header.kind = static_cast<MessageKind>(kind);
  header.generation = get_at<std::uint32_t>(message, kGenerationAt);
  header.run.bytes = get_at<std::array<std::byte, 16>>(message, kRunAt);
  header.position = get_at<Position>(message, kPositionAt);
  header.frame_length = get_at<std::uint64_t>(message, kFrameLengthAt);
  header.frame_hash = get_at<FrameHash>(message, kFrameHashAt);
  header.received = get_at<Position>(message, kReceivedAt);
  header.taken = get_at<std::uint64_t>(message, kTakenAt);
  header.attempt = get_at<std::uint32_t>(message, kAttemptAt);
  header.payload_length = get_at<std::uint32_t>(message, kPayloadLengthAt);
  if (message.size() - kHeaderBytes != header.payload_length) return fail(WireFault::truncated);
  if (is_lying(header)) return fail(WireFault::lying);
  parsed.payload = message.subspan(kHeaderBytes);
  return parsed;
}

}  // namespace strait::net
