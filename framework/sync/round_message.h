#pragma once

#include <cstdint>
#include <span>

#include "framework/net/frame_memory.h"

namespace strait::sync {

// The head of a frame between members; ROUND.md has the bytes.
struct RoundMessage {
  enum class Kind : std::uint8_t { told = 1, agreed = 2, held = 3 };
  Kind kind = Kind::told;
  std::uint8_t exchange = 0;
  std::uint32_t epoch = 0;
  std::uint64_t round = 0;
  std::uint32_t part = 0;
  auto operator<=>(const RoundMessage&) const = default;
};
inline constexpr std::size_t kRoundMessageBytes = 24;

// A frame that begins with this head; the caller appends the rest.
net::Frame start_frame(const RoundMessage& head);
// SyncError corrupt where there is none. The rest of the frame is behind kRoundMessageBytes.
RoundMessage read_head(std::span<const std::byte> frame);

}  // namespace strait::sync
