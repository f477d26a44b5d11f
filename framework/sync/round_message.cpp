#include "framework/sync/round_message.h"

#include <fmt/format.h>

#include "framework/bytes.h"
#include "framework/sync/sync_error.h"

namespace strait::sync {

net::Frame start_frame(const RoundMessage& header) {
  net::Frame frame;
  append_value(frame, header);
  return frame;
}

RoundMessage read_header(std::span<const std::byte> frame) {
  ByteReader reader(frame);
  const auto header = reader.value<RoundMessage>();
  if (reader.failed()) {
    throw SyncError(SyncError::Kind::corrupt,
                    fmt::format("a message between replicas has {} bytes, its header alone has {}",
                                frame.size(), kRoundMessageBytes));
  }
  const auto kind = static_cast<unsigned>(header.kind);
  if (kind < 1 || kind > 4 || header.zero != 0 || header.further_zero != 0) {
    throw SyncError(SyncError::Kind::corrupt,
                    fmt::format("a message between replicas is of unknown kind {}", kind));
  }
  return header;
}

}  // namespace strait::sync
