#include "framework/sync/round_message.h"

#include <fmt/format.h>

#include "framework/bytes.h"
#include "framework/sync/sync_error.h"

namespace strait::sync {
net::Frame start_frame(const RoundMessage& header) {
  net::Frame frame(kRoundMessageBytes, std::byte{0});
  ByteWriter writer(frame);
  writer.value(header.kind);
  writer.value(header.exchange);
  writer.value(std::uint16_t{0});
  writer.value(header.epoch);
  writer.value(header.round);
  writer.value(header.part);
  writer.value(std::uint32_t{0});
  return frame;
}

RoundMessage read_header(std::span<const std::byte> frame) {
  if (frame.size() < kRoundMessageBytes) {
    throw SyncError(SyncError::Kind::corrupt,
                    fmt::format("a message between replicas has {} bytes, its header alone has {}",
                                frame.size(), kRoundMessageBytes));
  }
  RoundMessage header;
  ByteReader reader(frame.first(kRoundMessageBytes));
  const auto kind = reader.value<std::uint8_t>();
  header.exchange = reader.value<std::uint8_t>();
  const auto reserved = reader.value<std::uint16_t>();
  header.epoch = reader.value<std::uint32_t>();
  header.round = reader.value<std::uint64_t>();
  header.part = reader.value<std::uint32_t>();
  if (kind < 1 || kind > 4 || reserved != 0 || reader.value<std::uint32_t>() != 0) {
    throw SyncError(SyncError::Kind::corrupt,
                    fmt::format("a message between replicas is of unknown kind {}", kind));
  }
  header.kind = static_cast<RoundMessage::Kind>(kind);
  return header;
}

}  // namespace strait::sync
