#include "framework/net/rate_meter.h"

#include <gtest/gtest.h>

namespace strait::net {
namespace {

using std::chrono::milliseconds;
const RateMeter::Time kStart{std::chrono::seconds(100)};

TEST(RateMeter, KnowsNothingBeforeSomethingWasConfirmed) {
  RateMeter meter;
  EXPECT_EQ(meter.bytes_per_second(), 0);
  meter.update(kStart, 100000, 0);
  meter.update(kStart + milliseconds(50), 200000, 0);
  EXPECT_EQ(meter.bytes_per_second(), 0);
}

TEST(RateMeter, CountsOnlyTheTimeInWhichSomethingWasInFlight) {
  RateMeter meter;
  meter.update(kStart, 100000, 0);
  meter.update(kStart + milliseconds(100), 100000, 100000);
  EXPECT_DOUBLE_EQ(meter.bytes_per_second(), 1e6);
  // Ten idle seconds, then the same again: they are not part of any period.
  meter.update(kStart + milliseconds(10100), 200000, 100000);
  meter.update(kStart + milliseconds(10200), 200000, 200000);
  EXPECT_DOUBLE_EQ(meter.bytes_per_second(), 1e6);
}

TEST(RateMeter, MeasuresAPathThatIsNeverIdle) {
  RateMeter meter;
  std::uint64_t confirmed = 0;
  for (int i = 0; i < 100; ++i) {
    meter.update(kStart + milliseconds(10 * i), confirmed + 50000, confirmed);
    confirmed += 20000;
  }
  EXPECT_NEAR(meter.bytes_per_second(), 2e6, 0.1e6);
}

TEST(RateMeter, SmallFramesOnALongPathDoNotHideWhatALargeOneShowed) {
  RateMeter meter;
  meter.update(kStart, 1000000, 0);
  meter.update(kStart + milliseconds(100), 1000000, 1000000);
  for (int i = 0; i < 10; ++i) {
    const auto at = kStart + milliseconds(1000 + 100 * i);
    meter.update(at, 1000000 + 5000 * (i + 1), 1000000 + 5000 * i);
    meter.update(at + milliseconds(50), 1000000 + 5000 * (i + 1), 1000000 + 5000 * (i + 1));
  }
  EXPECT_DOUBLE_EQ(meter.bytes_per_second(), 1e7);
}

TEST(RateMeter, ForgetsASpeedThatThePathNoLongerHas) {
  RateMeter meter;
  meter.update(kStart, 1000000, 0);
  meter.update(kStart + milliseconds(10), 1000000, 1000000);
  for (int i = 0; i < 16; ++i) {
    const auto at = kStart + milliseconds(1000 + 200 * i);
    meter.update(at, 1000000 + 100000 * (i + 1), 1000000 + 100000 * i);
    meter.update(at + milliseconds(100), 1000000 + 100000 * (i + 1), 1000000 + 100000 * (i + 1));
  }
  EXPECT_DOUBLE_EQ(meter.bytes_per_second(), 1e6);
}

// Three chunks, one behind the other, on a path of 1 MB/s with a round trip of 100 ms.
void three_chunks(RateMeter& meter, RateMeter::Time at, std::uint64_t place) {
  meter.update(at, place + 30000, place);
  for (int i = 1; i <= 3; ++i) meter.chunk_sent(place + 10000 * i, i < 3);
  for (int i = 1; i <= 3; ++i) {
    meter.update(at + milliseconds(100 + 10 * i), place + 30000, place + 10000 * i);
  }
}

TEST(RateMeter, LeavesTheRoundTripOutWhereChunksWentOneBehindTheOther) {
  RateMeter meter;
  three_chunks(meter, kStart, 0);
  EXPECT_DOUBLE_EQ(meter.back_to_back_rate(), 1e6);
  EXPECT_DOUBLE_EQ(meter.bytes_per_second(), 1e6);
}

TEST(RateMeter, SoItDoesWhereSomethingIsAlwaysInFlight) {
  RateMeter meter;
  const auto sent = [](int burst) { return 30000 * static_cast<std::uint64_t>(burst); };
  for (int i = 0; i < 50; ++i) {
    const auto at = kStart + milliseconds(10 * i);
    if (i % 5 == 0) {
      meter.update(at, sent(i / 5 + 1), i < 15 ? 0 : sent(i / 5 - 2));
      for (int k = 1; k <= 3; ++k) meter.chunk_sent(sent(i / 5) + 10000 * k, k < 3);
    }
    // Those of the burst 100 ms ago.
    if (i >= 11 && i % 5 != 0 && i % 5 <= 3) {
      meter.update(at, sent(i / 5 + 1), sent(i / 5 - 2) + 10000 * (i % 5));
    }
  }
  EXPECT_DOUBLE_EQ(meter.back_to_back_rate(), 1e6);
}

TEST(RateMeter, OneConfirmationThatComesLateDoesNotCount) {
  RateMeter meter;
  for (int i = 0; i < 8; ++i) {
    const auto at = kStart + milliseconds(1000 * i);
    const std::uint64_t place = 30000 * static_cast<std::uint64_t>(i);
    if (i != 4) {
      three_chunks(meter, at, place);
      continue;
    }
    meter.update(at, place + 30000, place);
    for (int k = 1; k <= 3; ++k) meter.chunk_sent(place + 10000 * k, k < 3);
    meter.update(at + milliseconds(124), place + 30000, place + 10000);
    meter.update(at + milliseconds(130), place + 30000, place + 30000);
  }
  EXPECT_DOUBLE_EQ(meter.back_to_back_rate(), 1e6);
}

// On a fast path bursts are over before their time can be told from noise.
TEST(RateMeter, WhatCameInNoTimeSaysHowMuchThePathCarriesAtLeast) {
  RateMeter meter;
  const auto burst = [&](std::uint64_t place, std::uint64_t chunk, milliseconds apart) {
    meter.update(kStart, place + 3 * chunk, place);
    for (std::uint64_t k = 1; k <= 3; ++k) meter.chunk_sent(place + chunk * k, k < 3);
    for (std::uint64_t k = 1; k <= 3; ++k) {
      meter.update(kStart + apart * k, place + 3 * chunk, place + chunk * k);
    }
  };
  burst(0, 100000, milliseconds(1));
  EXPECT_DOUBLE_EQ(meter.back_to_back_rate(), 200000 / 5e-3);
  burst(300000, 10000, milliseconds(1));  // less than is known already
  EXPECT_DOUBLE_EQ(meter.back_to_back_rate(), 200000 / 5e-3);
  for (std::uint64_t i = 0; i < 3; ++i) burst(330000 + 3000000 * i, 1000000, milliseconds(10));
  EXPECT_DOUBLE_EQ(meter.back_to_back_rate(), 1e8);
}

}  // namespace
}  // namespace strait::net
