#include "launcher/planner/boundary_forecast.h"

#include <gtest/gtest.h>

namespace strait::planner {
namespace {

BoundaryLoad full_rows() {
  BoundaryLoad load;
  load.width = 96;
  load.rows = 4;
  load.tokens_per_row = 128;
  load.documents_per_row = 3;
  return load;
}

// The heads of a message of four rows with three documents each.
constexpr double kHeads = 28 + 4 * (12 + 3 * 4);

TEST(BoundaryForecast, RawBytesAreValuesInWireType) {
  recipe::Recipe::Codec codec;
  codec.wire_dtype = recipe::WireDtype::bfloat16;
  const BoundaryBytes bytes = boundary_bytes(codec, full_rows());
  EXPECT_EQ(bytes.known_forward, kHeads + 4 * 128 * 96 * 2);
  EXPECT_EQ(bytes.first_forward, bytes.known_forward);
  EXPECT_EQ(bytes.backward, bytes.known_forward);
}

TEST(BoundaryForecast, CountsBytesOfCacheHitsAndMisses) {
  recipe::Recipe::Codec codec;
  codec.forward = "delta";
  codec.backward = "fixed";
  const BoundaryBytes bytes = boundary_bytes(codec, full_rows());
  // A token of width 96 in groups of 64: top exponent, two scales, bits of 96 values.
  EXPECT_EQ(bytes.known_forward, kHeads + 3 + 4 * 11 + 4 * 128 * (1 + 2 + 4 * 12));
  EXPECT_EQ(bytes.first_forward, kHeads + 3 + 4 * 3 + 4 * 128 * (1 + 2 + 8 * 12));
  EXPECT_EQ(bytes.backward, bytes.first_forward);
  codec.first_bits = 16;
  EXPECT_EQ(boundary_bytes(codec, full_rows()).first_forward,
            kHeads + 3 + 4 * 3 + 4 * 128 * 96 * 2);
}

TEST(BoundaryForecast, EntryOfEightBitsIsHalfAsLarge) {
  recipe::Recipe::Codec codec;
  EXPECT_EQ(entry_bytes(codec, 128, 96), 128 * 96 * 2);
  codec.cache_kind = recipe::CacheKind::eight_bits;
  EXPECT_EQ(entry_bytes(codec, 128, 96), 128 * (1 + 2 + 96));
}

}  // namespace
}  // namespace strait::planner
