#pragma once

#include "framework/codec/message.h"
#include "framework/codec/settings.h"
#include "kernels/group_format.h"

namespace strait::codec {

// The payload of SampleEncoder, row by row; the page is MESSAGE.md. All errors that a peer could
// make are found here, without libtorch, before the payload is used.
inline constexpr std::uint8_t kSampleFormat = 1;  // first byte of the payload
inline constexpr int kWholeBits = 16;             // a row of bfloat16

enum class RowBase : std::uint8_t {
  none = 0,   // values that are not cached
  fresh = 1,  // values that are cached: a change from zero
  entry = 2,  // the change since the entry with `hash`
};

struct PayloadHeader {
  bool cached = false;  // both ends cache rows
  int group = 64;       // of all rows
};

struct RowHeader {
  RowBase base = RowBase::none;
  int bits = 4;
  bool rotate = false;
  std::uint64_t hash = 0;  // of the base, with RowBase::entry
};

// The header of a row to be written, without its hash. Groups with outliers are rotated in
// gradients of four bits or fewer: rounding errors of a gradient, unlike those of an activation,
// are not corrected by the sample's next use.
RowHeader row_header(RowBase base, int bits, Direction direction);

inline constexpr std::size_t kPayloadHeaderBytes = 3;
constexpr std::size_t row_header_bytes(RowBase base) { return base == RowBase::entry ? 11 : 3; }

// The size of the values alone.
std::size_t data_bytes(const RowHeader& row, int group, std::int64_t tokens, std::int64_t width);

// Both write at `to` and return the end of what they wrote.
std::byte* write_payload_header(const PayloadHeader& header, std::byte* to);
std::byte* write_row_header(const RowHeader& header, std::byte* to);

// XXH3-64 of an entry's bytes.
std::uint64_t entry_hash(std::span<const std::byte> entry);

// Iterates over a payload. The constructor checks all of it and throws CodecError, so that no row
// of a malformed payload changes a cache. Keeps references to both arguments.
class SamplePayload {
 public:
  SamplePayload(const TensorHeader& header, std::span<const std::byte> payload, bool cached);

  struct Part {
    RowHeader header;
    std::span<const std::byte> data;
  };
  // The next row. May be called once per row of the tensor.
  Part next();

  int group() const { return group_; }

 private:
  const TensorHeader& tensor_;
  std::span<const std::byte> rest_;
  bool cached_;
  int group_ = 0;
  std::size_t place_ = 0;
};

// The payload of Kind::whole: format, memory, then the entry of every row as cached by the sender.
inline constexpr std::size_t kWholeHeaderBytes = 2;
std::byte* write_whole_header(std::byte* to);
// Returns the concatenated entries; throws CodecError.
std::span<const std::byte> read_whole(const TensorHeader& header,
                                      std::span<const std::byte> payload);

}  // namespace strait::codec
