#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "framework/codec/rows.h"
#include "framework/net/link.h"

namespace strait::codec {

// What a frame on a boundary is. The value is the frame's first byte.
enum class Kind : std::uint8_t {
  forward = 1,   // a tensor on its way down the pipeline
  backward = 2,  // a tensor on its way up
  note = 3,      // what the processes agree on between steps; not a tensor
  resend = 4,    // back to a tensor's sender: these rows' base is not held here; no payload
  whole = 5,     // the answer to it: the rows as the sender holds them
};

// The head of a tensor message: the receiver needs nothing that it was told before.
// Layout, little endian; the page is framework/codec/MESSAGE.md.
struct TensorHeader {
  Kind kind = Kind::forward;
  bool evaluation = false;  // crosses outside training: never touches a codec's training state
  store::Step step{};
  std::int32_t micro_batch = 0;
  std::int64_t width = 0;
  Rows rows;
};

inline constexpr std::int64_t kMaxRows = 1 << 20;
inline constexpr std::int64_t kMaxPaddedLength = 1 << 24;
inline constexpr std::int64_t kMaxWidth = 1 << 20;
inline constexpr std::int64_t kMaxElements = std::int64_t{1}
                                             << 33;  // of one tensor, padding included

Kind kind_of(std::span<const std::byte> frame);

// Appends the head to an empty frame; the codec's payload follows it.
void write_head(const TensorHeader& head, net::Frame& frame);

struct ReadTensor {
  TensorHeader head;
  std::span<const std::byte> payload;  // into the frame that was read
};

// Checks every length before it allocates; throws CodecError.
ReadTensor read_head(std::span<const std::byte> frame);

}  // namespace strait::codec
