#include "framework/codec/message.h"

#include <fmt/format.h>

#include <algorithm>

#include "framework/bytes.h"

namespace strait::codec {
namespace {

// Reads consecutive values; throws CodecError at the end of the frame.
class HeaderReader {
 public:
  explicit HeaderReader(std::span<const std::byte> bytes) : bytes_(bytes) {}

  template <typename Value>
  Value next(const char* what) {
    const auto value = bytes_.value<Value>();
    if (bytes_.failed()) {
      throw CodecError(fmt::format("a boundary message ends inside its {}", what));
    }
    return value;
  }

  // A count that the remaining bytes cannot hold is refused before memory is allocated for it.
  std::int64_t count(const char* what, std::int64_t limit, std::size_t bytes_each) {
    const auto value = static_cast<std::int64_t>(next<std::uint32_t>(what));
    if (value > limit || static_cast<std::size_t>(value) * bytes_each > bytes_.rest().size()) {
      throw CodecError(fmt::format("a boundary message claims {} {}; at most {} are possible here",
                                   value, what, limit));
    }
    return value;
  }

  std::span<const std::byte> rest() const { return bytes_.rest(); }

 private:
  ByteReader bytes_;
};

Row read_row(HeaderReader& cursor, std::int64_t padded_length) {
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

void write_header(const TensorHeader& head, net::Frame& frame) {
  std::size_t documents = 0;
  for (const Row& row : head.rows.rows) documents += row.documents.size();
  const std::size_t begin = frame.size();
  frame.resize(begin + header_bytes(head.rows.rows.size(), documents));
  ByteWriter to(std::span<std::byte>(frame).subspan(begin));
  to.value(static_cast<std::uint8_t>(head.kind));
  to.value(static_cast<std::uint8_t>(head.evaluation ? 1 : 0));
  to.value(std::uint16_t{0});
  to.value(head.micro_batch);
  to.value(number(head.step));
  to.value(static_cast<std::uint32_t>(head.width));
  to.value(static_cast<std::uint32_t>(head.rows.padded_length));
  to.value(static_cast<std::uint32_t>(head.rows.rows.size()));
  for (const Row& row : head.rows.rows) {
    to.value(number(row.sample));
    to.value(static_cast<std::uint32_t>(row.documents.size()));
    for (const std::int64_t length : row.documents) to.value(static_cast<std::uint32_t>(length));
  }
}

ReadTensor read_header(std::span<const std::byte> frame) {
  ReadTensor read;
  TensorHeader& head = read.head;
  head.kind = kind_of(frame);
  if (head.kind == Kind::note) throw CodecError("a boundary message is a note, not a tensor");
  HeaderReader cursor(frame.subspan(1));
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
