// The bits of the quantising kernels: every instruction set that this machine has gives those of
// the plain implementation beside this file.
#define HWY_COMPILE_ALL_ATTAINABLE
#include <gtest/gtest.h>
#include <hwy/highway.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <utility>

#include "kernels/row_quantization.h"
#include "tests/kernels/plain_rows.h"
#include "tests/kernels/random_rows.h"
#include "tests/kernels/row_cases.h"

namespace strait::kernels::quantize_bits_test {
namespace {

constexpr std::uint32_t kSeed = 20240611;
constexpr Draw kNearest{};

using Bytes = std::vector<std::byte>;

Bytes bytes_for(std::int64_t size) {
  return Bytes(static_cast<std::size_t>(size), std::byte{0xA5});
}

bool same(const RandomRow& left, const RandomRow& right) {
  return std::memcmp(left.data(), right.data(), left.size()) == 0;
}

void expect_close(double actual, double expected) {
  EXPECT_NEAR(actual, expected, 1e-4 * std::fabs(expected));
}

// The sums are for reports: close, and only where float32 holds the squares of a token.
void expect_sums(const SquareSums& actual, const SquareSums& expected, Content content) {
  EXPECT_EQ(actual.refused_groups, expected.refused_groups);
  if (content != Content::plain) return;
  expect_close(actual.value, expected.value);
  expect_close(actual.change, expected.change);
  expect_close(actual.error, expected.error);
}

void check_values(const RowCase& one, std::mt19937& random) {
  RandomRow row(one.tokens, one.width, one.element);
  row.fill(one.content, random);
  Bytes actual = bytes_for(one.tokens * token_bytes(one.format, one.width) + 1);
  Bytes expected = actual;
  SquareSums actual_sums;
  SquareSums expected_sums;
  quantize(row.values(), one.format, one.draw, actual.data(), &actual_sums);
  plain::quantize(row.values(), one.format, one.draw, expected.data(), &expected_sums);
  ASSERT_EQ(actual, expected);
  expect_sums(actual_sums, expected_sums, one.content);
  RandomRow actual_read(one.tokens, one.width, one.element);
  RandomRow expected_read = actual_read;
  dequantize(actual.data(), one.format, actual_read.output());
  plain::dequantize(actual.data(), one.format, expected_read.output());
  ASSERT_TRUE(same(actual_read, expected_read));
}

void check_changes(const RowCase& one, std::mt19937& random) {
  RandomRow row(one.tokens, one.width, one.element);
  Bytes bytes = bytes_for(one.tokens * token_bytes(one.format, one.width) + 1);
  Bytes plain_bytes = bytes;
  Bytes sent = bytes_for(entry_bytes(one.tokens, one.width) + 1);
  Bytes received = sent;
  Bytes expected = sent;
  for (int visit = 0; visit < 3; ++visit) {
    row.fill(one.content, random);
    const Draw draw{one.draw.rounding, one.draw.key + static_cast<std::uint64_t>(visit)};
    SquareSums sums;
    SquareSums plain_sums;
    quantize_change(row.values(), one.format, draw, visit == 0, sent.data(), bytes.data(), &sums);
    Bytes plain_sent = expected;
    plain::quantize_change(row.values(), one.format, draw, visit == 0, plain_sent.data(),
                           plain_bytes.data(), &plain_sums);
    ASSERT_EQ(bytes, plain_bytes) << "visit " << visit;
    ASSERT_EQ(sent, plain_sent) << "visit " << visit;
    expect_sums(sums, plain_sums, one.content);
    RandomRow read(one.tokens, one.width, one.element);
    RandomRow plain_read = read;
    apply_change(bytes.data(), one.format, visit == 0, received.data(), read.output());
    plain::apply_change(bytes.data(), one.format, visit == 0, expected.data(), plain_read.output());
    ASSERT_EQ(received, sent) << "the two ends differ after visit " << visit;
    ASSERT_EQ(expected, sent) << "visit " << visit;
    ASSERT_TRUE(same(read, plain_read)) << "visit " << visit;
  }
}

void check_whole_entries(const RowCase& one, std::mt19937& random) {
  RandomRow row(one.tokens, one.width, one.element);
  row.fill(one.content, random);
  Bytes actual = bytes_for(entry_bytes(one.tokens, one.width) + 1);
  Bytes expected = actual;
  // One byte off: payloads have odd lengths.
  store_entry(row.values(), actual.data() + 1);
  plain::store_entry(row.values(), expected.data() + 1);
  ASSERT_EQ(actual, expected);
  RandomRow read(one.tokens, one.width, one.element);
  RandomRow plain_read = read;
  load_entry(actual.data() + 1, read.output());
  plain::load_entry(expected.data() + 1, plain_read.output());
  ASSERT_TRUE(same(read, plain_read));
}

void check_garbage(const RowCase& one, std::mt19937& random) {
  Bytes bytes = bytes_for(one.tokens * token_bytes(one.format, one.width));
  for (std::byte& byte : bytes) byte = static_cast<std::byte>(random());
  RandomRow read(one.tokens, one.width, one.element);
  RandomRow plain_read = read;
  dequantize(bytes.data(), one.format, read.output());
  plain::dequantize(bytes.data(), one.format, plain_read.output());
  ASSERT_TRUE(same(read, plain_read));
}

class QuantizeBits : public testing::TestWithParam<std::int64_t> {
 protected:
  void SetUp() override { hwy::SetSupportedTargetsForTest(GetParam()); }
  void TearDown() override { hwy::SetSupportedTargetsForTest(0); }

  void check_all(void (*check)(const RowCase&, std::mt19937&)) {
    std::mt19937 random(kSeed);
    for (const RowCase& one : some_row_cases(random)) {
      SCOPED_TRACE(one.name() + ", seed " + std::to_string(kSeed));
      check(one, random);
      if (HasFatalFailure()) return;
    }
  }
};

TEST_P(QuantizeBits, OfValuesAreThePlainOnes) { check_all(check_values); }
TEST_P(QuantizeBits, OfChangesAndEntriesAreThePlainOnesOnBothSides) { check_all(check_changes); }
TEST_P(QuantizeBits, OfWholeEntriesAreThePlainOnes) { check_all(check_whole_entries); }
TEST_P(QuantizeBits, OfGarbageReadAreThePlainOnes) { check_all(check_garbage); }

INSTANTIATE_TEST_SUITE_P(OnEveryInstructionSet, QuantizeBits,
                         testing::ValuesIn(hwy::SupportedAndGeneratedTargets()),
                         [](const auto& set) { return std::string(hwy::TargetName(set.param)); });

TEST(QuantizeBits, AreComparedOnMoreThanThePlainInstructionSet) {
  EXPECT_GE(hwy::SupportedAndGeneratedTargets().size(), 2U);
}

TEST(QuantizeBits, OfTheExampleOnThePageAreAsPrinted) {
  std::vector<float> values(38);
  const std::array<float, 6> last{1, -0.25F, 0.5F, -1.5F, 0.1F, 0.75F};
  std::copy(last.begin(), last.end(), values.begin() + 32);
  const GroupFormat format{3, 32, false};
  Bytes bytes(static_cast<std::size_t>(token_bytes(format, 38)));
  quantize({values.data(), Element::float32, 1, 38}, format, kNearest, bytes.data(), nullptr);
  Bytes expected(18);
  const std::array<std::pair<std::size_t, int>, 5> printed{
      {{0, 0x7C}, {2, 0xFA}, {15, 0x06}, {16, 0x23}, {17, 0x35}}};
  for (const auto& [at, byte] : printed) expected[at] = static_cast<std::byte>(byte);
  EXPECT_EQ(bytes, expected);
}

// So that a token may be read without its neighbours.
TEST(QuantizeBits, OfATokenDoNotDependOnTheOthers) {
  std::mt19937 random(kSeed);
  const GroupFormat format{3, 64, true};
  RandomRow row(5, 200, Element::float32);
  row.fill(Content::wild, random);
  const auto bytes = static_cast<std::size_t>(token_bytes(format, 200));
  Bytes all(5 * bytes);
  quantize(row.values(), format, kNearest, all.data(), nullptr);
  for (std::size_t token = 0; token < 5; ++token) {
    Values alone = row.values();
    alone.data = static_cast<const float*>(alone.data) + token * 200;
    alone.tokens = 1;
    Bytes one(bytes);
    quantize(alone, format, kNearest, one.data(), nullptr);
    EXPECT_EQ(std::memcmp(one.data(), all.data() + token * bytes, bytes), 0) << "token " << token;
  }
}

}  // namespace
}  // namespace strait::kernels::quantize_bits_test
