// libFuzzer target: any bytes as a boundary message, and as the payload of one that is right up to
// there, read as rows with and without a cache and as whole rows. What is not refused in a
// CodecError lies inside the input.
#include <cstdlib>

#include "framework/codec/message.h"
#include "framework/codec/sample_format.h"

namespace {

void read_rows(const strait::codec::ReadTensor& read, bool cached) {
  strait::codec::SamplePayload rows(read.header, read.payload, cached);
  std::size_t seen = strait::codec::kPayloadHeaderBytes;
  for (const strait::codec::Row& row : read.header.rows.rows) {
    const auto part = rows.next();
    seen += strait::codec::row_header_bytes(part.header.base) + part.data.size();
    if (part.data.size() !=
        strait::codec::data_bytes(part.header, rows.group(), row.length(), read.header.width)) {
      std::abort();
    }
    if (part.header.base != strait::codec::RowBase::none && !cached) std::abort();
  }
  if (seen != read.payload.size()) std::abort();
}

void read_both_ways(const strait::codec::ReadTensor& read) {
  for (const bool cached : {false, true}) {
    try {
      read_rows(read, cached);
    } catch (const strait::codec::CodecError& error) {
      if (*error.what() == '\0') std::abort();
    }
  }
  try {
    const auto entries = strait::codec::read_whole(read.header, read.payload);
    if (entries.size() + strait::codec::kWholeHeaderBytes != read.payload.size()) std::abort();
  } catch (const strait::codec::CodecError& error) {
    if (*error.what() == '\0') std::abort();
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::span<const std::byte> bytes(reinterpret_cast<const std::byte*>(data), size);
  strait::codec::ReadTensor known;
  known.header.width = 40;
  known.header.rows.padded_length = 3;
  known.header.rows.rows = {{strait::store::SampleId{4}, {2, 1}},
                            {strait::store::SampleId{5}, {1}}};
  known.payload = bytes;
  read_both_ways(known);
  try {
    read_both_ways(strait::codec::read_header(bytes));
  } catch (const strait::codec::CodecError& error) {
    if (*error.what() == '\0') std::abort();
  }
  return 0;
}
