#pragma once

#include <span>

#include "framework/codec/rows.h"
#include "framework/error.h"
#include "framework/net/link.h"

namespace strait::codec {

// A message from a peer whose contents contradict its header, or which no correct sender writes.
class CodecError : public ProtocolError {
 public:
  using ProtocolError::ProtocolError;
};

// What a frame on a boundary is. The value is the frame's first byte.
enum class Kind : std::uint8_t {
  forward = 1,   // an activation, sent downstream
  backward = 2,  // a gradient, sent upstream
  note = 3,      // control data that stages exchange between steps; not a tensor
  resend = 4,    // to the sender of a tensor: the receiver lacks the base of these rows; no payload
  whole = 5,     // the reply to resend: the rows as cached by the sender
};

// The header of a tensor message. It is self-contained: reading it needs no earlier message.
// Little-endian; the layout is in framework/codec/MESSAGE.md.
struct TensorHeader {
  Kind kind = Kind::forward;
  bool evaluation = false;  // must not change a codec's training state
  store::Step step{};
  std::int32_t micro_batch = 0;
  std::int64_t width = 0;
  Rows rows;

  // The bytes of its values in float32, against which compression is measured.
  std::uint64_t raw_bytes() const {
    return static_cast<std::uint64_t>(rows.tokens() * width) * sizeof(float);
  }
};

// The largest tensor that a boundary's messages carry in a run; the width is that of all of them.
struct MessageLimits {
  std::int64_t rows = 0;
  std::int64_t row_tokens = 0;  // of the longest row
  std::int64_t width = 0;
};

inline constexpr std::int64_t kMaxRows = 1 << 20;
inline constexpr std::int64_t kMaxPaddedLength = 1 << 24;
inline constexpr std::int64_t kMaxWidth = 1 << 20;
// The most elements of one tensor, including padding.
inline constexpr std::int64_t kMaxElements = std::int64_t{1} << 33;

Kind kind_of(std::span<const std::byte> frame);

// Size of a header. Forecasts pass averages.
template <class Count>
constexpr Count header_bytes(Count rows, Count documents) {
  return Count{28} + Count{12} * rows + Count{4} * documents;
}

// Appends the header to an empty frame; the codec's payload follows it.
void write_header(const TensorHeader& header, net::Frame& frame);

struct ReadTensor {
  TensorHeader header;
  std::span<const std::byte> payload;  // points into the frame
};

// The bytes come from a peer, so every length is checked before memory of that size is allocated.
// Throws CodecError.
ReadTensor read_header(std::span<const std::byte> frame);

}  // namespace strait::codec
