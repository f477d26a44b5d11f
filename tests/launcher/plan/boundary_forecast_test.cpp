#include "launcher/plan/boundary_forecast.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <set>
#include <vector>

namespace strait::launcher {
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

TEST(BoundaryForecast, RawIsTheValuesInTheWiresType) {
  Recipe::Codec codec;
  codec.wire_dtype = WireDtype::bfloat16;
  const BoundaryBytes bytes = boundary_bytes(codec, full_rows());
  EXPECT_EQ(bytes.known_forward, kHeads + 4 * 128 * 96 * 2);
  EXPECT_EQ(bytes.first_forward, bytes.known_forward);
  EXPECT_EQ(bytes.backward, bytes.known_forward);
}

TEST(BoundaryForecast, ChangesAndFirstVisitsAreCountedByTheByte) {
  Recipe::Codec codec;
  codec.forward = CodecKind::delta;
  codec.backward = CodecKind::fixed;
  const BoundaryBytes bytes = boundary_bytes(codec, full_rows());
  // A token of width 96 in groups of 64: top exponent, two scales, bits of 96 values.
  EXPECT_EQ(bytes.known_forward, kHeads + 3 + 4 * 11 + 4 * 128 * (1 + 2 + 4 * 12));
  EXPECT_EQ(bytes.first_forward, kHeads + 3 + 4 * 3 + 4 * 128 * (1 + 2 + 8 * 12));
  EXPECT_EQ(bytes.backward, bytes.first_forward);
  codec.first_bits = 16;
  EXPECT_EQ(boundary_bytes(codec, full_rows()).first_forward,
            kHeads + 3 + 4 * 3 + 4 * 128 * 96 * 2);
}

TEST(BoundaryForecast, AnEntryIsHalfAsLargeInEightBits) {
  Recipe::Codec codec;
  EXPECT_EQ(entry_bytes(codec, 128, 96), 128 * 96 * 2);
  codec.cache_kind = CacheKind::eight_bits;
  EXPECT_EQ(entry_bytes(codec, 128, 96), 128 * (1 + 2 + 96));
}

// Hits of the rule itself (keep what is visited again soonest) over epochs in orders of their own.
double simulated_hits(std::size_t samples, std::size_t places, std::mt19937_64& generator) {
  constexpr std::size_t kEpochs = 12;
  std::vector<std::size_t> visits;
  for (std::size_t epoch = 0; epoch < kEpochs; ++epoch) {
    std::vector<std::size_t> order(samples);
    for (std::size_t i = 0; i < samples; ++i) order[i] = i;
    std::shuffle(order.begin(), order.end(), generator);
    visits.insert(visits.end(), order.begin(), order.end());
  }
  std::vector<std::size_t> next(visits.size());
  std::vector<std::size_t> seen(samples, visits.size());
  for (std::size_t i = visits.size(); i-- > 0;) {
    next[i] = seen[visits[i]];
    seen[visits[i]] = i;
  }
  std::set<std::pair<std::size_t, std::size_t>> kept;  // next visit, sample
  std::size_t hits = 0;
  for (std::size_t i = 0; i < visits.size(); ++i) {
    const bool hit = kept.erase({i, visits[i]}) == 1;
    // The first epoch fills, the last forgets: neither is what most of a run is like.
    if (hit && i >= 2 * samples && i < visits.size() - 2 * samples) ++hits;
    kept.insert({next[i], visits[i]});
    if (kept.size() > places) kept.erase(std::prev(kept.end()));
  }
  return static_cast<double>(hits) / static_cast<double>(visits.size() - 4 * samples);
}

TEST(BoundaryForecast, HitsAreThoseOfTheEvictionRule) {
  constexpr std::uint64_t kSeed = 20240301;
  std::mt19937_64 generator(kSeed);
  for (const double fits : {0.1, 0.25, 1.0 / 3, 0.5, 0.75, 0.9}) {
    constexpr std::size_t kSamples = 600;
    const double hits =
        simulated_hits(kSamples, static_cast<std::size_t>(fits * kSamples), generator);
    EXPECT_NEAR(share_of_hits(fits, true), hits, 0.03) << fits << ", seed " << kSeed;
  }
  EXPECT_EQ(share_of_hits(0.0, true), 0);
  EXPECT_EQ(share_of_hits(1.0, true), 1);
  EXPECT_EQ(share_of_hits(7.0, true), 1);
  EXPECT_EQ(share_of_hits(0.25, false), 0.25);
}

}  // namespace
}  // namespace strait::launcher
