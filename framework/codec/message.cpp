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
  // A slice of a row names the document that goes on in it first, also where that has just ended.
  const std::int64_t documents =
      cursor.count("documents of a row", padded_length + 1, sizeof(std::uint32_t));
  row.documents.reserve(static_cast<std::size_t>(documents));
  for (std::int64_t i = 0; i < documents; ++i) {
    row.documents.push_back(cursor.next<std::uint32_t>("document length"));
  }
  // Checked here, because the decoder copies rows into tensors of the padded length.
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

void write_header(const TensorHeader& header, net::Frame& frame) {
  std::size_t documents = 0;
  for (const Row& row : header.rows.rows) documents += row.documents.size();
  const std::size_t begin = frame.size();
  frame.resize(begin + header_bytes(header.rows.rows.size(), documents));
  ByteWriter to(std::span<std::byte>(frame).subspan(begin));
  to.value(static_cast<std::uint8_t>(header.kind));
  to.value(static_cast<std::uint8_t>(header.evaluation ? 1 : 0));
  // Keeps the following fields aligned; readers ignore it.
  to.value(std::uint16_t{0});
  to.value(header.micro_batch);
  to.value(number(header.step));
  to.value(static_cast<std::uint32_t>(header.width));
  to.value(static_cast<std::uint32_t>(header.rows.padded_length));
  to.value(static_cast<std::uint32_t>(header.rows.rows.size()));
  for (const Row& row : header.rows.rows) {
    to.value(number(row.sample));
    to.value(static_cast<std::uint32_t>(row.documents.size()));
    for (const std::int64_t length : row.documents) to.value(static_cast<std::uint32_t>(length));
  }
}

ReadTensor read_header(std::span<const std::byte> frame) {
  ReadTensor read;
  TensorHeader& header = read.header;
  header.kind = kind_of(frame);
  if (header.kind == Kind::note) throw CodecError("a boundary message is a note, not a tensor");
  HeaderReader cursor(frame.subspan(1));
  header.evaluation = cursor.next<std::uint8_t>("flags") != 0;
  cursor.next<std::uint16_t>("reserved bytes");
  header.micro_batch = cursor.next<std::int32_t>("micro-batch");
  header.step = static_cast<store::Step>(cursor.next<std::int64_t>("step"));
  header.width = cursor.count("elements of width", kMaxWidth, 0);
  header.rows.padded_length = cursor.count("tokens of row length", kMaxPaddedLength, 0);
  const std::int64_t rows =
      cursor.count("rows", kMaxRows, sizeof(std::int64_t) + sizeof(std::uint32_t));
  header.rows.rows.reserve(static_cast<std::size_t>(rows));
  for (std::int64_t i = 0; i < rows; ++i) {
    header.rows.rows.push_back(read_row(cursor, header.rows.padded_length));
  }
  // A product of limits that each hold may still exceed memory. Divided and not multiplied, so that
  // it cannot overflow.
  if (rows * header.rows.padded_length > kMaxElements / std::max<std::int64_t>(header.width, 1)) {
    throw CodecError(fmt::format("a boundary message claims {} rows of {} tokens of width {}", rows,
                                 header.rows.padded_length, header.width));
  }
  read.payload = cursor.rest();
  if (header.kind == Kind::resend && !read.payload.empty()) {
    throw CodecError(
        fmt::format("a boundary message that asks for rows again has {} bytes after its header; "
                    "none are expected",
                    read.payload.size()));
  }
  return read;
}

}  // namespace strait::codec
