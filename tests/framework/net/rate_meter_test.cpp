#include "framework/net/rate_meter.h"

#include <gtest/gtest.h>

namespace strait::net {
namespace {

using std::chrono::milliseconds;
const RateMeter::Time kStart{std::chrono::seconds(100)};

// Confirmations take no time, unless a test says when they were made. The peer's clock is another.
class Meter : public RateMeter {
 public:
  void update(Time now, std::uint64_t pushed, std::uint64_t confirmed) {
    update_late(now, now, pushed, confirmed);
  }
  void update_late(Time now, Time arrived, std::uint64_t pushed, std::uint64_t confirmed) {
    RateMeter::update(now, pushed, confirmed, arrived - kStart + std::chrono::hours(7));
  }
};

TEST(RateMeter, KnowsNothingBeforeSomethingWasConfirmed) {
  Meter meter;
  EXPECT_EQ(meter.bytes_per_second(), 0);
  meter.update(kStart, 100000, 0);
  meter.update(kStart + milliseconds(50), 200000, 0);
  EXPECT_EQ(meter.bytes_per_second(), 0);
}

TEST(RateMeter, CountsOnlyTheTimeInWhichSomethingWasInFlight) {
  Meter meter;
  meter.update(kStart, 100000, 0);
  meter.update(kStart + milliseconds(100), 100000, 100000);
  EXPECT_DOUBLE_EQ(meter.bytes_per_second(), 1e6);
  // Ten idle seconds, then the same again: they are not part of any period.
  meter.update(kStart + milliseconds(10100), 200000, 100000);
  meter.update(kStart + milliseconds(10200), 200000, 200000);
  EXPECT_DOUBLE_EQ(meter.bytes_per_second(), 1e6);
}

TEST(RateMeter, MeasuresAPathThatIsNeverIdle) {
  Meter meter;
  std::uint64_t confirmed = 0;
  for (int i = 0; i < 100; ++i) {
    meter.update(kStart + milliseconds(10 * i), confirmed + 50000, confirmed);
    confirmed += 20000;
  }
  EXPECT_NEAR(meter.bytes_per_second(), 2e6, 0.1e6);
}

// Each second 100 kB arrive, and once in ten seconds the peer's queue lets the confirmations of all
// of them through within 300 ms.
TEST(RateMeter, ConfirmationsThatComeTogetherDoNotMakeAPathWide) {
  Meter meter;
  std::uint64_t confirmed = 0;
  meter.update(kStart, 200000, 0);
  for (int second = 10; second <= 100; second += 10) {
    for (int i = 1; i <= 10; ++i) {
      const auto arrived = kStart + std::chrono::seconds(second - 10 + i);
      confirmed += 100000;
      meter.update_late(kStart + std::chrono::seconds(second) + milliseconds(30 * i), arrived,
                        confirmed + 200000, confirmed);
    }
  }
  EXPECT_NEAR(meter.bytes_per_second(), 1e5, 2e4);
}

TEST(RateMeter, SmallFramesOnALongPathDoNotHideWhatALargeOneShowed) {
  Meter meter;
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
  Meter meter;
  meter.update(kStart, 1000000, 0);
  meter.update(kStart + milliseconds(10), 1000000, 1000000);
  for (int i = 0; i < 16; ++i) {
    const auto at = kStart + milliseconds(1000 + 200 * i);
    meter.update(at, 1000000 + 100000 * (i + 1), 1000000 + 100000 * i);
    meter.update(at + milliseconds(100), 1000000 + 100000 * (i + 1), 1000000 + 100000 * (i + 1));
  }
  EXPECT_DOUBLE_EQ(meter.bytes_per_second(), 1e6);
}

// Three fragments, one after the other, on a path of 1 MB/s with a round trip of 100 ms.
void three_fragments(Meter& meter, RateMeter::Time at, std::uint64_t position) {
  meter.update(at, position + 30000, position);
  for (int i = 1; i <= 3; ++i) meter.fragment_sent(at, position + 10000 * i, i < 3);
  for (int i = 1; i <= 3; ++i) {
    meter.update(at + milliseconds(100 + 10 * i), position + 30000, position + 10000 * i);
  }
}

TEST(RateMeter, LeavesTheRoundTripOutWhereFragmentsWentOneBehindTheOther) {
  Meter meter;
  three_fragments(meter, kStart, 0);
  EXPECT_DOUBLE_EQ(meter.back_to_back_rate(), 1e6);
  EXPECT_DOUBLE_EQ(meter.bytes_per_second(), 1e6);
}

TEST(RateMeter, SoItDoesWhereSomethingIsAlwaysInFlight) {
  Meter meter;
  const auto sent = [](int burst) { return 30000 * static_cast<std::uint64_t>(burst); };
  for (int i = 0; i < 50; ++i) {
    const auto at = kStart + milliseconds(10 * i);
    if (i % 5 == 0) {
      meter.update(at, sent(i / 5 + 1), i < 15 ? 0 : sent(i / 5 - 2));
      for (int k = 1; k <= 3; ++k) meter.fragment_sent(at, sent(i / 5) + 10000 * k, k < 3);
    }
    // Those of the burst 100 ms ago.
    if (i >= 11 && i % 5 != 0 && i % 5 <= 3) {
      meter.update(at, sent(i / 5 + 1), sent(i / 5 - 2) + 10000 * (i % 5));
    }
  }
  EXPECT_DOUBLE_EQ(meter.back_to_back_rate(), 1e6);
}

TEST(RateMeter, OneConfirmationThatComesLateDoesNotCount) {
  Meter meter;
  for (int i = 0; i < 8; ++i) {
    const auto at = kStart + milliseconds(1000 * i);
    const std::uint64_t position = 30000 * static_cast<std::uint64_t>(i);
    if (i != 4) {
      three_fragments(meter, at, position);
      continue;
    }
    meter.update(at, position + 30000, position);
    for (int k = 1; k <= 3; ++k) meter.fragment_sent(at, position + 10000 * k, k < 3);
    meter.update(at + milliseconds(124), position + 30000, position + 10000);
    meter.update(at + milliseconds(130), position + 30000, position + 30000);
  }
  EXPECT_DOUBLE_EQ(meter.back_to_back_rate(), 1e6);
}

constexpr std::uint64_t kSmall = 100;  // bytes, and they take a millisecond

void small_frame(Meter& meter) {
  const auto at = kStart - milliseconds(10);
  meter.update(at, kSmall, 0);
  meter.fragment_sent(at, kSmall, false);
  meter.update(at + milliseconds(1), kSmall, kSmall);
}

// A busy host reads what has come for 40 ms at once: so fast was no path.
TEST(RateMeter, WhatWasHeldUpAndCameAtOnceIsNoFastPath) {
  for (std::uint64_t stalled = 0; stalled < 4; ++stalled) {
    Meter meter;
    small_frame(meter);
    // 20 Mbit/s; each fragment takes 10 ms.
    const std::uint64_t fragment = 25'000;
    for (std::uint64_t burst = 0; burst < 20; ++burst) {
      const auto at = kStart + milliseconds(200 * burst);
      const std::uint64_t position = kSmall + 4 * fragment * burst;
      meter.update(at, position + 4 * fragment, position);
      for (std::uint64_t k = 1; k <= 4; ++k)
        meter.fragment_sent(at, position + fragment * k, k < 4);
      const bool held_up = burst <= stalled;
      for (std::uint64_t k = 1; k <= 4; ++k) {
        const auto comes = at + milliseconds(10 * k + 2);
        const auto read = held_up ? at + milliseconds(42) : comes;
        meter.update(read, position + 4 * fragment, position + fragment * k);
      }
      EXPECT_LE(meter.bytes_per_second(), 2.6e6) << burst << ' ' << stalled;
    }
  }
}

// What is in flight when a period is cut has been under way before the next one.
TEST(RateMeter, TheRestOfAPeriodThatWasCutIsNoFastPath) {
  Meter meter;
  meter.update(kStart, 500'000, 0);
  for (std::uint64_t i = 1; i <= 20; ++i) {
    // 2 MB/s, in pieces of 12.5 ms; of the last one the peer confirms each half.
    const auto at = kStart + std::chrono::microseconds(12'500 * i);
    meter.update(at, 525'000, 25'000 * i);
  }
  meter.update(kStart + milliseconds(251), 525'000, 525'000);
  EXPECT_LE(meter.bytes_per_second(), 2.1e6);
}

TEST(RateMeter, LateConfirmationsDoNotMakeThePathSlowOrFast) {
  Meter meter;
  for (std::uint64_t burst = 0; burst < 8; ++burst) {
    const auto at = kStart + milliseconds(500 * burst);
    const std::uint64_t position = 30'000 * burst;
    meter.update(at, position + 30'000, position);
    for (std::uint64_t k = 1; k <= 3; ++k) meter.fragment_sent(at, position + 10'000 * k, k < 3);
    for (std::uint64_t k = 1; k <= 3; ++k) {
      const milliseconds late(k == 1 ? 20 : 20 + 100 * (burst % 2));
      meter.update_late(at + late + milliseconds(10 * k), at + milliseconds(10 * k),
                        position + 30'000, position + 10'000 * k);
    }
  }
  EXPECT_DOUBLE_EQ(meter.back_to_back_rate(), 1e6);
}

// On a fast path bursts are over before their time can be told from noise.
TEST(RateMeter, WhatCameInNoTimeSaysHowMuchThePathCarriesAtLeast) {
  Meter meter;
  small_frame(meter);
  const auto burst = [&](std::uint64_t position, std::uint64_t fragment, milliseconds apart) {
    meter.update(kStart, position + 3 * fragment, position);
    for (std::uint64_t k = 1; k <= 3; ++k)
      meter.fragment_sent(kStart, position + fragment * k, k < 3);
    for (std::uint64_t k = 1; k <= 3; ++k) {
      meter.update(kStart + apart * k, position + 3 * fragment, position + fragment * k);
    }
  };
  burst(kSmall, 100000, milliseconds(1));
  EXPECT_DOUBLE_EQ(meter.back_to_back_rate(), 200000 / 5e-3);
  burst(kSmall + 300000, 10000, milliseconds(1));  // less than is known already
  EXPECT_DOUBLE_EQ(meter.back_to_back_rate(), 200000 / 5e-3);
  for (std::uint64_t i = 0; i < 3; ++i)
    burst(kSmall + 330000 + 3000000 * i, 1000000, milliseconds(10));
  EXPECT_DOUBLE_EQ(meter.back_to_back_rate(), 1e8);
}

}  // namespace
}  // namespace strait::net
