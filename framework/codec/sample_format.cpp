#include "framework/codec/sample_format.h"

#include <fmt/format.h>
#include <xxhash.h>

#include <cstring>

namespace strait::codec {
namespace {

constexpr std::uint8_t kRotateFlag = 1;
constexpr std::int64_t kMostRowValues = std::int64_t{1} << 31;  // the kernels count in 32 bits

std::uint8_t take_byte(std::span<const std::byte>& rest) {
  const auto value = std::to_integer<std::uint8_t>(rest.front());
  rest = rest.subspan(1);
  return value;
}

void check_format(std::span<const std::byte>& rest, std::size_t header_size) {
  if (rest.size() < header_size) {
    throw CodecError(
        fmt::format("a payload of rows ends inside its header of {} bytes", header_size));
  }
  const std::uint8_t format = take_byte(rest);
  if (format != kSampleFormat) {
    throw CodecError(
        fmt::format("a payload of rows has format {}; this end reads {}", format, kSampleFormat));
  }
}

void check_cached(std::uint8_t theirs, bool cached) {
  if (theirs == (cached ? 1 : 0)) return;
  throw CodecError(fmt::format("a payload's sender says memory {}, but this end {}", theirs,
                               cached ? "caches rows (1)" : "has no cache (0)"));
}

RowHeader read_row_header(std::span<const std::byte>& rest, std::size_t place) {
  if (rest.size() < row_header_bytes(RowBase::none)) {
    throw CodecError(fmt::format("a payload of rows ends inside the header of row {}", place));
  }
  const std::uint8_t base = take_byte(rest);
  RowHeader header;
  header.bits = take_byte(rest);
  const std::uint8_t flags = take_byte(rest);
  header.rotate = flags == kRotateFlag;
  const bool whole = header.bits == kWholeBits;
  // Two or more bits: with one bit a quantiser has no zero. A bfloat16 row is stored whole, so it
  // can be neither rotated nor a change.
  const bool possible =
      base <= 2 && flags <= kRotateFlag &&
      ((header.bits >= 2 && header.bits <= 8) ||
       (whole && !header.rotate && base != static_cast<std::uint8_t>(RowBase::entry)));
  if (!possible) {
    throw CodecError(fmt::format(
        "row {} of a payload says base {}, {} bits, flags {}; this combination is invalid", place,
        base, header.bits, flags));
  }
  header.base = static_cast<RowBase>(base);
  if (header.base == RowBase::entry) {
    if (rest.size() < sizeof header.hash) {
      throw CodecError(fmt::format("a payload of rows ends inside the hash of row {}", place));
    }
    std::memcpy(&header.hash, rest.data(), sizeof header.hash);
    rest = rest.subspan(sizeof header.hash);
  }
  return header;
}

}  // namespace

RowHeader row_header(RowBase base, int bits, Direction direction) {
  // With few bits an outlier would set the scale of its whole group.
  constexpr int kFewBits = 4;
  return {base, bits, direction == Direction::backward && bits <= kFewBits, 0};
}

std::size_t data_bytes(const RowHeader& row, int group, std::int64_t tokens, std::int64_t width) {
  const std::int64_t token = row.bits == kWholeBits
                                 ? 2 * width
                                 : kernels::token_bytes({row.bits, group, row.rotate}, width);
  return static_cast<std::size_t>(tokens * token);
}

std::byte* write_payload_header(const PayloadHeader& header, std::byte* to) {
  *to++ = std::byte{kSampleFormat};
  *to++ = static_cast<std::byte>(header.cached ? 1 : 0);
  *to++ = static_cast<std::byte>(header.group);
  return to;
}

std::byte* write_row_header(const RowHeader& header, std::byte* to) {
  *to++ = static_cast<std::byte>(header.base);
  *to++ = static_cast<std::byte>(header.bits);
  *to++ = static_cast<std::byte>(header.rotate ? kRotateFlag : 0);
  if (header.base != RowBase::entry) return to;
  std::memcpy(to, &header.hash, sizeof header.hash);
  return to + sizeof header.hash;
}

std::uint64_t entry_hash(std::span<const std::byte> entry) {
  return XXH3_64bits(entry.data(), entry.size());
}

SamplePayload::SamplePayload(const TensorHeader& header, std::span<const std::byte> payload,
                             bool cached)
    : tensor_(header), rest_(payload), cached_(cached) {
  if (header.width < 1) throw CodecError("a payload of rows has a width of 0");
  check_format(rest_, kPayloadHeaderBytes);
  check_cached(take_byte(rest_), cached);
  group_ = take_byte(rest_);
  if (group_ != 32 && group_ != 64 && group_ != 128) {
    throw CodecError(fmt::format("a payload has groups of {}; known are 32, 64 and 128", group_));
  }
  // The whole payload is checked once before a row of it changes the cache.
  const std::span<const std::byte> rows = rest_;
  while (place_ < header.rows.rows.size()) next();
  if (!rest_.empty()) {
    throw CodecError(fmt::format("a payload has {} bytes after its last row", rest_.size()));
  }
  rest_ = rows;
  place_ = 0;
}

SamplePayload::Part SamplePayload::next() {
  Part part;
  part.header = read_row_header(rest_, place_);
  const std::int64_t tokens = tensor_.rows.rows[place_].length();
  if (part.header.base != RowBase::none && (!cached_ || tokens == 0)) {
    throw CodecError(fmt::format("row {} of a payload, of {} tokens, is to be cached, but {}",
                                 place_, tokens,
                                 cached_ ? "it is empty" : "this end has no cache"));
  }
  const std::size_t size = data_bytes(part.header, group_, tokens, tensor_.width);
  if (tokens * tensor_.width > kMostRowValues || rest_.size() < size) {
    throw CodecError(fmt::format("row {} of a payload takes {} bytes where {} are left", place_,
                                 size, rest_.size()));
  }
  part.data = rest_.first(size);
  rest_ = rest_.subspan(size);
  ++place_;
  return part;
}

std::byte* write_whole_header(std::byte* to) {
  *to++ = std::byte{kSampleFormat};
  *to++ = std::byte{1};
  return to;
}

std::span<const std::byte> read_whole(const TensorHeader& header,
                                      std::span<const std::byte> payload) {
  if (header.width < 1) throw CodecError("a payload of whole rows has a width of 0");
  check_format(payload, kWholeHeaderBytes);
  check_cached(take_byte(payload), true);
  std::size_t expected = 0;
  for (const Row& row : header.rows.rows) {
    expected += static_cast<std::size_t>(kernels::entry_bytes(row.length(), header.width));
  }
  if (payload.size() != expected) {
    throw CodecError(fmt::format("a payload of whole rows has {} bytes where they take {}",
                                 payload.size(), expected));
  }
  return payload;
}

}  // namespace strait::codec
