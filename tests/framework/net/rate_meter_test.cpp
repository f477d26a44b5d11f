#include "framework/net/rate_meter.h"

#include <gtest/gtest.h>

namespace strait::net {
namespace {

using std::chrono::milliseconds;
const RateMeter::Time kStart{std::chrono::seconds(100)};

TEST(RateMeter, KnowsNothingBeforeSomethingWasConfirmed) {
  RateMeter meter;
  EXPECT_EQ(meter.bytes_per_second(), 0);
  meter.look(kStart, 100000, 0);
  meter.look(kStart + milliseconds(50), 200000, 0);
  EXPECT_EQ(meter.bytes_per_second(), 0);
}

TEST(RateMeter, CountsOnlyTheTimeInWhichSomethingWasUnderWay) {
  RateMeter meter;
  meter.look(kStart, 100000, 0);
  meter.look(kStart + milliseconds(100), 100000, 100000);
  EXPECT_DOUBLE_EQ(meter.bytes_per_second(), 1e6);
  // Ten idle seconds, then the same again: they are not part of any period.
  meter.look(kStart + milliseconds(10100), 200000, 100000);
  meter.look(kStart + milliseconds(10200), 200000, 200000);
  EXPECT_DOUBLE_EQ(meter.bytes_per_second(), 1e6);
}

TEST(RateMeter, MeasuresAPathThatIsNeverIdle) {
  RateMeter meter;
  std::uint64_t confirmed = 0;
  for (int i = 0; i < 100; ++i) {
    meter.look(kStart + milliseconds(10 * i), confirmed + 50000, confirmed);
    confirmed += 20000;
  }
  EXPECT_NEAR(meter.bytes_per_second(), 2e6, 0.1e6);
}

TEST(RateMeter, SmallFramesOnALongPathDoNotHideWhatALargeOneShowed) {
  RateMeter meter;
  meter.look(kStart, 1000000, 0);
  meter.look(kStart + milliseconds(100), 1000000, 1000000);
  for (int i = 0; i < 10; ++i) {
    const auto at = kStart + milliseconds(1000 + 100 * i);
    meter.look(at, 1000000 + 5000 * (i + 1), 1000000 + 5000 * i);
    meter.look(at + milliseconds(50), 1000000 + 5000 * (i + 1), 1000000 + 5000 * (i + 1));
  }
  EXPECT_DOUBLE_EQ(meter.bytes_per_second(), 1e7);
}

TEST(RateMeter, ForgetsASpeedThatThePathNoLongerHas) {
  RateMeter meter;
  meter.look(kStart, 1000000, 0);
  meter.look(kStart + milliseconds(10), 1000000, 1000000);
  for (int i = 0; i < 16; ++i) {
    const auto at = kStart + milliseconds(1000 + 200 * i);
    meter.look(at, 1000000 + 100000 * (i + 1), 1000000 + 100000 * i);
    meter.look(at + milliseconds(100), 1000000 + 100000 * (i + 1), 1000000 + 100000 * (i + 1));
  }
  EXPECT_DOUBLE_EQ(meter.bytes_per_second(), 1e6);
}

}  // namespace
}  // namespace strait::net
