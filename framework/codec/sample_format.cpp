#include "framework/codec/sample_format.h"

#include <fmt/format.h>
#include <xxhash.h>

#include <cstring>

#include "framework/codec/message.h"

namespace strait::codec {
namespace {

constexpr std::uint8_t kRotateFlag = 1;
constexpr std::int64_t kMostRowValues = std::int64_t{1} << 31;  // the kernels count in 32 bits

std::uint8_t memory_byte(Memory memory) {
  if (!memory) return 0;
  return *memory == kernels::CacheFormat::bfloat16 ? 1 : 2;
}

const char* memory_word(std::uint8_t byte) {
  if (byte == 0) return "has no cache";
  return byte == 1 ? "caches in bfloat16" : "caches in 8 bits";
}

std::uint8_t take_byte(std::span<const std::byte>& rest) {
  const auto value = std::to_integer<std::uint8_t>(rest.front());
  rest = rest.subspan(1);
  return value;
}

void check_format(std::span<const std::byte>& rest, std::size_t head_size) {
  if (rest.size() < head_size) {
    throw CodecError(
        fmt::format("a payload of rows ends inside its header of {} bytes", head_size));
  }
  const std::uint8_t format = take_byte(rest);
  if (format != kSampleFormat) {
    throw CodecError(
        fmt::format("a payload of rows has format {}; this end reads {}", format, kSampleFormat));
  }
}

void check_memory(std::uint8_t theirs, Memory memory) {
  if (theirs == memory_byte(memory)) return;
  throw CodecError(fmt::format("a payload's sender {}, but this end {}", memory_word(theirs),
                               memory_word(memory_byte(memory))));
}

RowHeader read_row_header(std::span<const std::byte>& rest, std::size_t place) {
  if (rest.size() < row_header_bytes(RowBase::none)) {
    throw CodecError(fmt::format("a payload of rows ends inside the header of row {}", place));
  }
  const std::uint8_t base = take_byte(rest);
  RowHeader head;
  head.bits = take_byte(rest);
  const std::uint8_t flags = take_byte(rest);
  head.rotate = flags == kRotateFlag;
  const bool whole = head.bits == kWholeBits;
  const bool possible =
      base <= 2 && flags <= kRotateFlag &&
      ((head.bits >= 2 && head.bits <= 8) ||
       (whole && !head.rotate && base != static_cast<std::uint8_t>(RowBase::entry)));
  if (!possible) {
    throw CodecError(fmt::format(
        "row {} of a payload says base {}, {} bits, flags {}; this combination is invalid", place,
        base, head.bits, flags));
  }
  head.base = static_cast<RowBase>(base);
  if (head.base == RowBase::entry) {
    if (rest.size() < sizeof head.hash) {
      throw CodecError(fmt::format("a payload of rows ends inside the hash of row {}", place));
    }
    std::memcpy(&head.hash, rest.data(), sizeof head.hash);
    rest = rest.subspan(sizeof head.hash);
  }
  return head;
}

}  // namespace

RowHeader row_header(RowBase base, int bits, const CodecSettings& settings, Direction direction) {
  constexpr int kFewBits = 4;
  const bool coarse_gradient = direction == Direction::backward && bits <= kFewBits;
  return {base, bits, bits != kWholeBits && (settings.rotate || coarse_gradient), 0};
}

std::size_t data_bytes(const RowHeader& row, int group, std::int64_t tokens, std::int64_t width) {
  const std::int64_t token = row.bits == kWholeBits
                                 ? 2 * width
                                 : kernels::token_bytes({row.bits, group, row.rotate}, width);
  return static_cast<std::size_t>(tokens * token);
}

std::byte* write_payload_header(const PayloadHeader& head, std::byte* to) {
  *to++ = std::byte{kSampleFormat};
  *to++ = static_cast<std::byte>(memory_byte(head.memory));
  *to++ = static_cast<std::byte>(head.group);
  return to;
}

std::byte* write_row_header(const RowHeader& head, std::byte* to) {
  *to++ = static_cast<std::byte>(head.base);
  *to++ = static_cast<std::byte>(head.bits);
  *to++ = static_cast<std::byte>(head.rotate ? kRotateFlag : 0);
  if (head.base != RowBase::entry) return to;
  std::memcpy(to, &head.hash, sizeof head.hash);
  return to + sizeof head.hash;
}

std::uint64_t entry_hash(std::span<const std::byte> entry) {
  return XXH3_64bits(entry.data(), entry.size());
}

SamplePayload::SamplePayload(const TensorHeader& head, std::span<const std::byte> payload,
                             Memory memory)
    : tensor_(head), rest_(payload), memory_(memory) {
  if (head.width < 1) throw CodecError("a payload of rows has a width of 0");
  check_format(rest_, kPayloadHeaderBytes);
  check_memory(take_byte(rest_), memory);
  group_ = take_byte(rest_);
  if (group_ != 32 && group_ != 64 && group_ != 128) {
    throw CodecError(fmt::format("a payload has groups of {}; known are 32, 64 and 128", group_));
  }
  const std::span<const std::byte> rows = rest_;
  while (place_ < head.rows.rows.size()) next();
  if (!rest_.empty()) {
    throw CodecError(fmt::format("a payload has {} bytes behind its last row", rest_.size()));
  }
  rest_ = rows;
  place_ = 0;
}

SamplePayload::Part SamplePayload::next() {
  Part part;
  part.head = read_row_header(rest_, place_);
  const std::int64_t tokens = tensor_.rows.rows[place_].length();
  if (part.head.base != RowBase::none && (!memory_ || tokens == 0)) {
    throw CodecError(fmt::format("row {} of a payload, of {} tokens, is to be cached, but {}",
                                 place_, tokens,
                                 memory_ ? "it is empty" : "this end has no cache"));
  }
  const std::size_t size = data_bytes(part.head, group_, tokens, tensor_.width);
  if (tokens * tensor_.width > kMostRowValues || rest_.size() < size) {
    throw CodecError(fmt::format("row {} of a payload takes {} bytes where {} are left", place_,
                                 size, rest_.size()));
  }
  part.data = rest_.first(size);
  rest_ = rest_.subspan(size);
  ++place_;
  return part;
}

std::byte* write_whole_header(kernels::CacheFormat kind, std::byte* to) {
  *to++ = std::byte{kSampleFormat};
  *to++ = static_cast<std::byte>(memory_byte(kind));
  return to;
}

std::span<const std::byte> read_whole(const TensorHeader& head, std::span<const std::byte> payload,
                                      kernels::CacheFormat kind) {
  if (head.width < 1) throw CodecError("a payload of whole rows has a width of 0");
  check_format(payload, kWholeHeaderBytes);
  check_memory(take_byte(payload), kind);
  std::size_t expected = 0;
  for (const Row& row : head.rows.rows) {
    expected += static_cast<std::size_t>(kernels::entry_bytes(kind, row.length(), head.width));
  }
  if (payload.size() != expected) {
    throw CodecError(fmt::format("a payload of whole rows has {} bytes where they take {}",
                                 payload.size(), expected));
  }
  return payload;
}

}  // namespace strait::codec
