// The error bounds of the three group codes, for random sizes.
#include "framework/sync/group_codes.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>

#include "framework/sync/sync_error.h"

namespace strait::sync {
namespace {

constexpr const char* kWhat = "a part";
constexpr float kInfinity = std::numeric_limits<float>::infinity();

std::vector<float> normal_values(std::size_t count, std::mt19937_64& random, double spread) {
  std::normal_distribution<double> normal(0, spread);
  std::vector<float> values(count);
  for (float& value : values) value = static_cast<float>(normal(random));
  return values;
}

std::vector<float> through_bytes(const std::vector<float>& values) {
  net::Frame frame(3);
  append_byte_groups(values, frame);
  EXPECT_EQ(frame.size(), 3 + byte_groups_size(values.size()));
  std::vector<float> back(values.size());
  read_byte_groups(std::span(frame).subspan(3), back, kWhat);
  return back;
}

std::vector<float> through_levels(const std::vector<float>& values, int bits) {
  net::Frame frame(3);
  append_symmetric_groups(values, bits, frame, kWhat);
  EXPECT_EQ(frame.size(), 3 + symmetric_groups_size(values.size(), bits));
  std::vector<float> back(values.size());
  read_symmetric_groups(std::span(frame).subspan(3), bits, back, kWhat);
  return back;
}

// Decoded values differ from the originals by at most `share` of the group's extent.
void expect_near(const std::vector<float>& values, const std::vector<float>& back,
                 std::size_t group, float share) {
  for (std::size_t first = 0; first < values.size(); first += group) {
    const std::size_t last = std::min(first + group, values.size());
    float least = 0;
    float largest = 0;
    for (std::size_t i = first; i < last; ++i) {
      least = std::min(least, values[i]);
      largest = std::max(largest, values[i]);
    }
    for (std::size_t i = first; i < last; ++i) {
      ASSERT_LE(std::abs(values[i] - back[i]), share * (largest - least)) << i;
    }
  }
}

TEST(ByteGroups, LoseAtMostHalfAStepAndKeepZeroExact) {
  std::mt19937_64 random(1);
  for (int run = 0; run < 200; ++run) {
    std::vector<float> values = normal_values(random() % 5000, random,
                                              std::exp2(static_cast<double>(random() % 200) - 100));
    for (float& value : values) {
      if (random() % 4 == 0) value = 0;
    }
    const std::vector<float> back = through_bytes(values);
    // Half a step, and half of one for the level of zero.
    expect_near(values, back, kByteGroup, 1.001F / 255);
    for (std::size_t i = 0; i < values.size(); ++i) {
      ASSERT_TRUE(values[i] != 0 || back[i] == 0) << i;
    }
  }
}

TEST(ByteGroups, NonFiniteValueMakesOnlyItsGroupNaN) {
  std::mt19937_64 random(2);
  for (const float bad : {kInfinity, -kInfinity, std::nanf("")}) {
    std::vector<float> values = normal_values(3 * kByteGroup, random, 1);
    values[kByteGroup + 17] = bad;
    const std::vector<float> back = through_bytes(values);
    for (std::size_t i = 0; i < back.size(); ++i) {
      EXPECT_EQ(std::isnan(back[i]), i / kByteGroup == 1) << i;
    }
  }
  const float most = std::numeric_limits<float>::max();
  for (const float value : through_bytes({most, -most, 1})) EXPECT_FALSE(std::isnan(value));
}

TEST(SymmetricGroups, LoseAtMostHalfAStep) {
  std::mt19937_64 random(3);
  for (int run = 0; run < 300; ++run) {
    const int bits = static_cast<int>(2 + random() % 7);
    std::vector<float> values = normal_values(random() % 1000, random, 1e-3);
    const std::vector<float> back = through_levels(values, bits);
    const auto levels = static_cast<float>((1 << (bits - 1)) - 1);
    for (std::size_t first = 0; first < values.size(); first += kSymmetricGroup) {
      const std::size_t last = std::min(first + kSymmetricGroup, values.size());
      float largest = 0;
      for (std::size_t i = first; i < last; ++i) largest = std::max(largest, std::abs(values[i]));
      // A scale is rounded up by less than a part in 128.
      const float half_step = largest / levels * (1 + 1.0F / 128) / 2;
      for (std::size_t i = first; i < last; ++i) {
        ASSERT_LE(std::abs(values[i] - back[i]), half_step * 1.0001F);
      }
    }
  }
}

// There is no epsilon and no smallest scale: scaled values have the same codes.
TEST(SymmetricGroups, LossIsIndependentOfScale) {
  std::mt19937_64 random(4);
  for (int bits = 2; bits <= 8; ++bits) {
    const std::vector<float> values = normal_values(1000, random, 1);
    const std::vector<float> back = through_levels(values, bits);
    for (const int power : {-100, -60, -30, -7, 40, 100}) {
      std::vector<float> scaled = values;
      for (float& value : scaled) value = std::ldexp(value, power);
      const std::vector<float> scaled_back = through_levels(scaled, bits);
      for (std::size_t i = 0; i < back.size(); ++i) {
        ASSERT_EQ(scaled_back[i], std::ldexp(back[i], power));
      }
    }
  }
}

TEST(SymmetricGroups, RefuseNonFiniteValues) {
  for (const float bad : {kInfinity, -kInfinity, std::nanf("")}) {
    net::Frame frame;
    EXPECT_THROW(append_symmetric_groups(std::vector<float>{1, bad}, 4, frame, kWhat), SyncError);
  }
}

// Measured in spreads, decoded values are never further from the originals than zero is: error
// feedback needs that to converge.
TEST(SignGroups, ReduceTheError) {
  std::mt19937_64 random(5);
  for (int run = 0; run < 200; ++run) {
    const std::size_t count = 1 + random() % 6000;
    const std::vector<float> values = normal_values(count, random, 1e-4);
    std::vector<float> spread = normal_values(count, random, 1e-3);
    for (float& value : spread) value = random() % 5 == 0 ? 0.0F : std::abs(value);
    net::Frame frame(1);
    append_sign_groups(values, spread, frame, kWhat);
    ASSERT_EQ(frame.size(), 1 + sign_groups_size(count));
    std::vector<float> back(count);
    read_sign_groups(std::span(frame).subspan(1), spread, back, kWhat);
    double all = 0;
    double left_out = 0;
    for (std::size_t i = 0; i < count; ++i) {
      if (spread[i] == 0) {
        ASSERT_EQ(back[i], 0);
        continue;
      }
      all += std::pow(values[i] / spread[i], 2);
      left_out += std::pow((values[i] - back[i]) / spread[i], 2);
    }
    EXPECT_LE(left_out, all * 1.0001);
  }
}

TEST(SignGroups, RefuseNonFiniteValues) {
  net::Frame frame;
  EXPECT_THROW(
      append_sign_groups(std::vector<float>{1, kInfinity}, std::vector<float>{1, 1}, frame, kWhat),
      SyncError);
}

// A finite scale that makes a value infinite.
TEST(SignGroups, RefuseScaleThatOverflowsWithSpread) {
  net::Frame frame;
  append_sign_groups(std::vector<float>{1}, std::vector<float>{1}, frame, kWhat);
  const float scale = 1e30F;
  std::memcpy(frame.data(), &scale, sizeof scale);
  EXPECT_NO_THROW(check_sign_groups(frame, std::vector<float>{1e-8F}, kWhat));
  EXPECT_THROW(check_sign_groups(frame, std::vector<float>{1e10F}, kWhat), SyncError);
}

TEST(GroupCodes, RefuseWrongSizes) {
  std::mt19937_64 random(6);
  for (int run = 0; run < 500; ++run) {
    const std::size_t count = random() % 5000;
    const std::size_t size = random() % 6000;
    const net::Frame frame(size, std::byte{0});
    if (size != byte_groups_size(count)) {
      EXPECT_THROW(check_byte_groups(frame, count, kWhat), SyncError);
    }
    if (size != sign_groups_size(count)) {
      EXPECT_THROW(check_sign_groups(frame, std::vector<float>(count, 1), kWhat), SyncError);
    }
    if (size != symmetric_groups_size(count, 3)) {
      EXPECT_THROW(check_symmetric_groups(frame, count, 3, kWhat), SyncError);
    }
  }
}

}  // namespace
}  // namespace strait::sync
