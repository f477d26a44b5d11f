#pragma once

#include <compare>
#include <cstddef>
#include <cstdint>
#include <span>

#include "framework/net/frame_memory.h"

namespace strait::sync {

// The header of a frame between members, as its bytes on the wire (ROUND.md).
struct RoundMessage {
  enum class Kind : std::uint8_t {
    contribution = 1,  // to the owner of a part, or to the partner or all others
    result = 2,        // from the owner to all others
    ready = 3,         // the sender holds the whole round and can apply it
    hello = 4          // the first one of a link: what the member could sum with (group_hello.h)
  };
  Kind kind = Kind::contribution;
  std::uint8_t exchange = 0;
  std::uint16_t zero = 0;
  std::uint32_t epoch = 0;  // of the membership
  std::uint64_t round = 0;
  std::uint32_t part = 0;
  std::uint32_t further_zero = 0;

  auto operator<=>(const RoundMessage&) const = default;
};

inline constexpr std::size_t kRoundMessageBytes = sizeof(RoundMessage);
static_assert(kRoundMessageBytes == 24, "no padding");

// A frame that begins with this header; the caller appends the body.
net::Frame start_frame(const RoundMessage& header);

// SyncError (corrupt) if the frame does not begin with a valid header. The body begins at
// kRoundMessageBytes.
RoundMessage read_header(std::span<const std::byte> frame);

}  // namespace strait::sync
