#include "framework/codec/message.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <type_traits>

#include "framework/codec/codec_error.h"

namespace strait::codec {
namespace {

static_assert(std::endian::native == std::endian::little, "the wire is little endian");

template <typename Value>
void append_value(net::Frame& frame, Value value) {
  static_assert(std::is_integral_v<Value>);
  const std::size_t at = frame.size();
  frame.resize(at + sizeof(Value));
  std::memcpy(frame.data() + at, &value, sizeof(Value));
}

// Reads consecutive values; throws CodecError at the end of the frame.
class HeaderCursor {
 public:
  explicit HeaderCursor(std::span<const std::byte> bytes) : rest_(bytes) {}

  template <typename Value>
  Value next(const char* what) {
    if (rest_.size() < sizeof(Value)) {
      throw CodecError(fmt::format("a boundary message ends inside its {}", what));
    }
    Value value;
    std::memcpy(&value, rest_.data(), sizeof(Value));
    rest_ = rest_.subspan(sizeof(Value));
    return value;
  }

  // A count that the remaining bytes cannot hold is refused before memory is allocated for it.
  std::int64_t count(const char* what, std::int64_t limit, std::size_t bytes_each) {
    const auto value = static_cast<std::int64_t>(next<std::uint32_t>(what));
    if (value > limit || static_cast<std::size_t>(value) * bytes_each > rest_.size()) {
      throw CodecError(fmt::format("a boundary message claims {} {}; at most {} are possible here",
                                   value, what, limit));
    }
    return value;
  }

  std::span<const std::byte> rest() const { return rest_; }

 private:
  std::span<const std::byte> rest_;
};

Row read_row(HeaderCursor& cursor, std::int64_t padded_length) {
  Row row;
  row.sample = static_cast<store::SampleId>(cursor.next<std::int64_t>("sample id"));
  const std::int64_t documents =
      cursor.count("documents of a row", padded_length, sizeof(std::uint32_t));
  row.documents.reserve(static_cast<std::size_t>(documents));
  for (std::int64_t i = 0; i < documents; ++i) {
    row.documents.push_back(cursor.next<std::uint32_t>("document length"));
  }
  if (row.length() > padded_length) {
    throw CodecError(fmt::format("a boundary message has a row of {} tokens where {} fit",
                                 row.length(), padded_length));
  }
  return row;
}

}  // namespace

Kind kind_of(std::span<const std::byte> frame) {
  if (frame.empty()) throw CodecError("a boundary message is empty");
  const auto kind = std::to_integer<std::uint8_t>(frame[0]);
  if (kind < 1 || kind > 5) {
    throw CodecError(fmt::format("a boundary message is of kind {}; known are 1 to 5", kind));
  }
  return static_cast<Kind>(kind);
}

void write_head(const TensorHeader& head, net::Frame& frame) {
  append_value(frame, static_cast<std::uint8_t>(head.kind));
  append_value(frame, static_cast<std::uint8_t>(head.evaluation ? 1 : 0));
  append_value(frame, std::uint16_t{0});
  append_value(frame, head.micro_batch);
  append_value(frame, number(head.step));
  append_value(frame, static_cast<std::uint32_t>(head.width));
  append_value(frame, static_cast<std::uint32_t>(head.rows.padded_length));
  append_value(frame, static_cast<std::uint32_t>(head.rows.rows.size()));
  for (const Row& row : head.rows.rows) {
    append_value(frame, number(row.sample));
    append_value(frame, static_cast<std::uint32_t>(row.documents.size()));
    for (const std::int64_t length : row.documents) {
      append_value(frame, static_cast<std::uint32_t>(length));
    }
  }
}

ReadTensor read_head(std::span<const std::byte> frame) {
  ReadTensor read;
  TensorHeader& head = read.head;
  head.kind = kind_of(frame);
  if (head.kind == Kind::note) throw CodecError("a boundary message is a note, not a tensor");
  HeaderCursor cursor(frame.subspan(1));
  head.evaluation = cursor.next<std::uint8_t>("flags") != 0;
  cursor.next<std::uint16_t>("reserved bytes");
  head.micro_batch = cursor.next<std::int32_t>("micro-batch");
  head.step = static_cast<store::Step>(cursor.next<std::int64_t>("step"));
  head.width = cursor.count("elements of width", kMaxWidth, 0);
  head.rows.padded_length = cursor.count("tokens of row length", kMaxPaddedLength, 0);
  const std::int64_t rows =
      cursor.count("rows", kMaxRows, sizeof(std::int64_t) + sizeof(std::uint32_t));
  head.rows.rows.reserve(static_cast<std::size_t>(rows));
  for (std::int64_t i = 0; i < rows; ++i) {
    head.rows.rows.push_back(read_row(cursor, head.rows.padded_length));
  }
  if (rows * head.rows.padded_length > kMaxElements / std::max<std::int64_t>(head.width, 1)) {
    throw CodecError(fmt::format("a boundary message claims {} rows of {} tokens of width {}", rows,
                                 head.rows.padded_length, head.width));
  }
  read.payload = cursor.rest();
  if (head.kind == Kind::resend && !read.payload.empty()) {
    throw CodecError(
        fmt::format("a boundary message that asks for rows again has {} bytes after its header; "
                    "none are expected",
                    read.payload.size()));
  }
  return read;
}

}  // namespace strait::codec
