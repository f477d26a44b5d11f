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

net::Frame start_frame(const RoundMessage& header) {
  net::Frame frame(kRoundMessageBytes, std::byte{0});
  put_at(frame, 0, header.kind);
  put_at(frame, 1, header.exchange);
  put_at(frame, 4, header.epoch);
  put_at(frame, 8, header.round);
  put_at(frame, 16, header.part);
  return frame;
}

RoundMessage read_header(std::span<const std::byte> frame) {
  if (frame.size() < kRoundMessageBytes) {
    throw SyncError(SyncError::Kind::corrupt,
                    fmt::format("a message between replicas has {} bytes, its header alone has {}",
                                frame.size(), kRoundMessageBytes));
  }
  RoundMessage header;
  const auto kind = get_at<std::uint8_t>(frame, 0);
  if (kind < 1 || kind > 3 || get_at<std::uint16_t>(frame, 2) != 0 ||
      get_at<std::uint32_t>(frame, 20) != 0) {
    throw SyncError(SyncError::Kind::corrupt,
                    fmt::format("a message between replicas is of unknown kind {}", kind));
  }
  header.kind = static_cast<RoundMessage::Kind>(kind);
  header.exchange = get_at<std::uint8_t>(frame, 1);
  header.epoch = get_at<std::uint32_t>(frame, 4);
  header.round = get_at<std::uint64_t>(frame, 8);
  header.part = get_at<std::uint32_t>(frame, 16);
  return header;
}

}  // namespace strait::sync
