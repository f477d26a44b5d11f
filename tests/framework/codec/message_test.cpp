#include "framework/codec/message.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <random>

#include "framework/codec/raw.h"

namespace strait::codec::message_test {
namespace {

Rows random_rows(std::mt19937_64& random) {
  const auto up_to = [&](std::int64_t limit) {
    return static_cast<std::int64_t>(random() % static_cast<std::uint64_t>(limit + 1));
  };
  Rows rows;
  rows.padded_length = 1 + up_to(9);
  const std::int64_t count = up_to(4);
  for (std::int64_t i = 0; i < count; ++i) {
    Row row;
    row.sample = static_cast<store::SampleId>(up_to(1 << 30));
    std::int64_t left = rows.padded_length;
    // As in a slice of a longer row, in which no token is of the document that goes on.
    if (up_to(3) == 0) row.documents.push_back(0);
    while (left > 0 && up_to(3) != 0) {
      row.documents.push_back(1 + up_to(left - 1));
      left -= row.documents.back();
    }
    rows.rows.push_back(row);
  }
  return rows;
}

TensorHeader random_header(std::mt19937_64& random) {
  TensorHeader header;
  header.kind = random() % 2 == 0 ? Kind::forward : Kind::backward;
  header.evaluation = random() % 2 == 0;
  header.step = static_cast<store::Step>(random() % 1000000);
  header.micro_batch = static_cast<std::int32_t>(random() % 100);
  header.width = 1 + static_cast<std::int64_t>(random() % 7);
  header.rows = random_rows(random);
  return header;
}

// A tensor whose padding is zero, as every sender's is after a round trip.
at::Tensor tensor_for(const TensorHeader& header, at::ScalarType type) {
  at::Tensor tensor = at::randn({header.rows.size(), header.rows.padded_length, header.width});
  for (std::int64_t i = 0; i < header.rows.size(); ++i) {
    const std::int64_t length = header.rows.rows[static_cast<std::size_t>(i)].length();
    tensor[i].slice(0, length).zero_();
  }
  return tensor.to(type);
}

TEST(Message, ASliceMayNameOneDocumentMoreThanItHasTokens) {
  TensorHeader header;
  header.kind = Kind::forward;
  header.width = 2;
  header.rows.padded_length = 3;
  header.rows.rows.emplace_back().documents = {0, 1, 1, 1};
  net::Frame frame;
  write_header(header, frame);
  RawEncoder(at::kFloat).encode(header, tensor_for(header, at::kFloat), frame);
  EXPECT_EQ(read_header(frame).header.rows, header.rows);
}

TEST(Message, RawRoundTripIsExactInTensorsOwnType) {
  std::mt19937_64 random(20240817);
  for (int i = 0; i < 500; ++i) {
    const TensorHeader header = random_header(random);
    for (const at::ScalarType type : {at::kFloat, at::kBFloat16, at::kHalf}) {
      const at::Tensor tensor = tensor_for(header, type);
      net::Frame frame;
      write_header(header, frame);
      RawEncoder(type).encode(header, tensor, frame);
      const ReadTensor read = read_header(frame);
      EXPECT_EQ(read.header.rows, header.rows);
      EXPECT_EQ(read.header.step, header.step);
      EXPECT_EQ(read.header.kind, header.kind);
      EXPECT_EQ(read.header.evaluation, header.evaluation);
      const at::Tensor back = RawDecoder(type, type).decode(read.header, read.payload).values;
      ASSERT_TRUE(at::equal(back, tensor)) << "case " << i;
    }
  }
}

TEST(Message, DocumentedExampleHas120Bytes) {
  TensorHeader header;
  header.width = 2;
  header.rows.padded_length = 4;
  header.rows.rows = {Row{store::SampleId{40}, {4}}, Row{store::SampleId{41}, {2, 1}}};
  net::Frame frame;
  write_header(header, frame);
  EXPECT_EQ(frame.size(), 64U);
  RawEncoder(at::kFloat).encode(header, at::ones({2, 4, 2}), frame);
  EXPECT_EQ(frame.size(), 120U);
}

TEST(Message, NarrowWireTypesRoundOnce) {
  TensorHeader header;
  header.width = 64;
  header.rows.padded_length = 8;
  header.rows.rows = {Row{store::SampleId{1}, {8}}};
  const at::Tensor tensor = at::randn({1, 8, 64});
  for (const at::ScalarType wire : {at::kBFloat16, at::kHalf}) {
    net::Frame frame;
    RawEncoder(wire).encode(header, tensor, frame);
    EXPECT_EQ(frame.size(), 8U * 64U * 2U);
    const at::Tensor back = RawDecoder(wire, at::kFloat).decode(header, frame).values;
    EXPECT_TRUE(at::equal(back, tensor.to(wire).to(at::kFloat)));
  }
}

TEST(Message, RefusesEveryTruncatedFrame) {
  std::mt19937_64 random(7);
  const TensorHeader header = random_header(random);
  net::Frame frame;
  write_header(header, frame);
  RawEncoder(at::kFloat).encode(header, tensor_for(header, at::kFloat), frame);
  RawDecoder decoder(at::kFloat, at::kFloat);
  for (std::size_t size = 0; size < frame.size(); ++size) {
    const std::span<const std::byte> cut(frame.data(), size);
    EXPECT_THROW(
        {
          const ReadTensor read = read_header(cut);
          decoder.decode(read.header, read.payload);
        },
        CodecError)
        << size << " of " << frame.size() << " bytes";
  }
}

TEST(Message, ResendRequestCarriesOnlyHeader) {
  std::mt19937_64 random(31);
  TensorHeader header = random_header(random);
  header.kind = Kind::resend;
  net::Frame frame;
  write_header(header, frame);
  EXPECT_EQ(read_header(frame).header.kind, Kind::resend);
  EXPECT_EQ(read_header(frame).header.rows, header.rows);
  frame.push_back(std::byte{0});
  EXPECT_THROW(read_header(frame), CodecError);
}

TEST(Message, RefusesUnknownKinds) {
  for (int kind = 0; kind < 256; ++kind) {
    const net::Frame frame{static_cast<std::byte>(kind)};
    if (kind >= 1 && kind <= 5) {
      EXPECT_EQ(static_cast<int>(kind_of(frame)), kind);
    } else {
      EXPECT_THROW(kind_of(frame), CodecError) << kind;
    }
  }
}

TEST(Message, RandomBytesNeverCauseHugeAllocations) {
  std::mt19937_64 random(99);
  for (int i = 0; i < 20000; ++i) {
    net::Frame frame(random() % 80);
    for (std::byte& byte : frame) byte = static_cast<std::byte>(random() % 4);
    try {
      const ReadTensor read = read_header(frame);
      EXPECT_LE(read.header.rows.rows.size() * 12, frame.size());
      EXPECT_LE(read.header.rows.tokens(),
                read.header.rows.size() * read.header.rows.padded_length);
    } catch (const CodecError& error) {
      EXPECT_NE(std::string(error.what()), "");
    }
  }
}

}  // namespace
}  // namespace strait::codec::message_test
