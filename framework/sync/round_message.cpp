#include "framework/sync/round_message.h"

#include <fmt/format.h>

#include <cstring>

#include "framework/sync/sync_error.h"

namespace strait::sync {
namespace {

template <typename Value>
void put_at(net::Frame& frame, std::size_t at, Value value) {
  std::memcpy(frame.data() + at, &value, sizeof value);
}

template <typename Value>
Value get_at(std::span<const std::byte> frame, std::size_t at) {
  Value value;
  std::memcpy(&value, frame.data() + at, sizeof value);
  return value;
}

}  // namespace

net::Frame start_frame(const RoundMessage& head) {
  net::Frame frame(kRoundMessageBytes, std::byte{0});
  put_at(frame, 0, head.kind);
  put_at(frame, 1, head.exchange);
  put_at(frame, 4, head.epoch);
  put_at(frame, 8, head.round);
  put_at(frame, 16, head.part);
  return frame;
}

RoundMessage read_head(std::span<const std::byte> frame) {
  if (frame.size() < kRoundMessageBytes) {
    throw SyncError(SyncError::Kind::corrupt,
                    fmt::format("a message between replicas has {} bytes, its head alone has {}",
                                frame.size(), kRoundMessageBytes));
  }
  RoundMessage head;
  const auto kind = get_at<std::uint8_t>(frame, 0);
  if (kind < 1 || kind > 3 || get_at<std::uint16_t>(frame, 2) != 0 ||
      get_at<std::uint32_t>(frame, 20) != 0) {
    throw SyncError(SyncError::Kind::corrupt,
                    fmt::format("a message between replicas is of unknown kind {}", kind));
  }
  head.kind = static_cast<RoundMessage::Kind>(kind);
  head.exchange = get_at<std::uint8_t>(frame, 1);
  head.epoch = get_at<std::uint32_t>(frame, 4);
  head.round = get_at<std::uint64_t>(frame, 8);
  head.part = get_at<std::uint32_t>(frame, 16);
  return head;
}

}  // namespace strait::sync
