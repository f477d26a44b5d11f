#include "framework/sync/packet.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <functional>
#include <random>

#include "framework/sync/grid.h"
#include "framework/sync/sync_error.h"

namespace strait::sync {
namespace {

using testing::HasSubstr;

constexpr auto kValues = static_cast<std::size_t>(kGrain);

// Consecutive blocks of a few pieces, and their values.
struct Case {
  std::vector<Block> blocks;
  std::vector<float> values;
  PacketSettings settings;
};

Case random_case(std::uint64_t seed) {
  std::mt19937_64 random(seed);
  Case made;
  made.settings = {std::array{0.01, 0.2, 0.5, 0.93, 1.0}[random() % 5],
                   1 + static_cast<int>(random() % 8)};
  const std::size_t pieces = random() % 6;
  std::normal_distribution<float> normal(0,
                                         std::ldexp(1.0F, static_cast<int>(random() % 140) - 70));
  std::int64_t first = 0;
  for (std::uint32_t piece = 0; piece < pieces; ++piece) {
    const bool dense = random() % 3 == 0;
    const auto kind = random() % 5;
    const std::size_t blocks = 1 + random() % 40;
    const float scale = std::ldexp(1.0F, static_cast<int>(random() % 8));
    for (std::size_t b = 0; b < blocks; ++b) {
      const auto count =
          static_cast<std::uint8_t>(b + 1 < blocks ? kValues : 1 + random() % kValues);
      made.blocks.push_back({first, piece, count, dense});
      first += kGrain;
      for (std::size_t i = 0; i < kValues; ++i) {
        float value = kind == 0 ? 0 : normal(random) * scale;
        if (kind == 1) value = random() % 2 == 0 ? 1.0F : -1.0F;
        if (kind == 2 && random() % 4 != 0) value = 0;
        if (i >= count) value = 0;
        made.values.push_back(value);
      }
    }
  }
  return made;
}

SparseValues written(const Case& made, net::Frame& frame) {
  SparseValues sent;
  PacketScratch room;
  write_packet(made.blocks, made.values, made.settings, room, frame, sent);
  return sent;
}

SparseValues read(const std::vector<Block>& blocks, std::span<const std::byte> bytes) {
  SparseValues sent;
  PacketScratch room;
  read_packet(blocks, bytes, room, sent);
  return sent;
}

std::vector<float> read_values(const Case& made, const SparseValues& sent) {
  std::vector<float> values(made.values.size());
  add_to(values, sent);
  return values;
}

TEST(Packet, ReaderDecodesWhatWriterComputesWith) {
  for (std::uint64_t seed = 0; seed < 3000; ++seed) {
    const Case made = random_case(seed);
    net::Frame frame;
    const SparseValues sent = written(made, frame);
    ASSERT_EQ(read(made.blocks, frame), sent) << "seed " << seed;
    const auto values = read_values(made, sent);
    for (std::size_t i = 0; i < values.size(); ++i) {
      ASSERT_TRUE(std::isfinite(values[i]));
      if (values[i] == 0) continue;
      // The same sign, and zeros and padding stay zero.
      ASSERT_GT(values[i] * std::copysign(1.0F, made.values[i]), 0) << "seed " << seed;
      ASSERT_NE(made.values[i], 0) << "seed " << seed;
    }
  }
}

// The content of the scratch memory has no effect.
TEST(Packet, IsIndependentOfScratchMemory) {
  PacketScratch room;
  SparseValues sent;
  SparseValues got;
  for (std::uint64_t seed = 0; seed < 500; ++seed) {
    const Case made = random_case(seed);
    net::Frame fresh;
    const SparseValues expected = written(made, fresh);
    net::Frame frame;
    write_packet(made.blocks, made.values, made.settings, room, frame, sent);
    ASSERT_EQ(frame, fresh) << "seed " << seed;
    ASSERT_EQ(sent, expected) << "seed " << seed;
    read_packet(made.blocks, frame, room, got);
    ASSERT_EQ(got, expected) << "seed " << seed;
  }
}

TEST(Packet, SendsExactlyTheLargestShare) {
  for (std::uint64_t seed = 0; seed < 3000; ++seed) {
    const Case made = random_case(seed);
    net::Frame frame;
    const SparseValues sent = written(made, frame);
    const auto values = read_values(made, sent);
    std::vector<float> magnitudes;
    std::size_t taken = 0;
    std::size_t count = 0;
    for (std::size_t b = 0; b < made.blocks.size(); ++b) {
      if (made.blocks[b].dense) continue;
      count += made.blocks[b].count;
      for (std::size_t i = b * kValues; i < (b + 1) * kValues; ++i) {
        if (made.values[i] != 0) magnitudes.push_back(std::abs(made.values[i]));
        taken += values[i] != 0 ? 1U : 0U;
      }
    }
    const auto wanted =
        static_cast<std::size_t>(made.settings.top * static_cast<double>(count) + 0.5);
    ASSERT_EQ(taken, std::min(std::max<std::size_t>(wanted, 1), magnitudes.size()))
        << "seed " << seed;
    if (taken == 0) continue;
    std::sort(magnitudes.begin(), magnitudes.end(), std::greater<>());
    for (std::size_t b = 0; b < made.blocks.size(); ++b) {
      if (made.blocks[b].dense) continue;
      for (std::size_t i = b * kValues; i < (b + 1) * kValues; ++i) {
        const float magnitude = std::abs(made.values[i]);
        if (values[i] == 0) {
          ASSERT_LE(magnitude, magnitudes[taken - 1]) << "seed " << seed;
        } else {
          ASSERT_GE(magnitude, magnitudes[taken - 1]) << "seed " << seed;
        }
      }
    }
  }
}

TEST(Packet, SendsEveryDenseValueWithinHalfAStep) {
  for (std::uint64_t seed = 0; seed < 3000; ++seed) {
    const Case made = random_case(seed);
    net::Frame frame;
    const auto values = read_values(made, written(made, frame));
    for (std::size_t b = 0; b < made.blocks.size(); ++b) {
      if (!made.blocks[b].dense) continue;
      double sum = 0;
      double count = 0;
      for (std::size_t other = 0; other < made.blocks.size(); ++other) {
        if (made.blocks[other].piece != made.blocks[b].piece) continue;
        count += made.blocks[other].count;
        for (std::size_t i = 0; i < kValues; ++i) {
          sum += std::abs(static_cast<double>(made.values[other * kValues + i]));
        }
      }
      const double step = sum / count * std::ldexp(1.0, 3 - std::max(made.settings.bits, 4));
      for (std::size_t i = b * kValues; i < (b + 1) * kValues; ++i) {
        ASSERT_LE(std::abs(made.values[i] - values[i]), step * 0.51) << "seed " << seed;
      }
    }
  }
}

// Pins the format, and the arithmetic of all compilers and processors.
TEST(Packet, HasTheSameBytesOnEveryMachine) {
  std::uint64_t state = 5;
  const auto draw = [&] {
    state = state * 6364136223846793005U + 1442695040888963407U;
    return state >> 33U;
  };
  std::uint64_t hash = 1;
  const auto take = [&](std::uint64_t value) { hash = (hash ^ value) * 1099511628211U; };
  for (int round = 0; round < 100; ++round) {
    Case made;
    const std::size_t blocks = 1 + draw() % 300;
    for (std::size_t b = 0; b < blocks; ++b) {
      made.blocks.push_back({0, static_cast<std::uint32_t>(b / 50), kValues, b / 50 % 3 == 1});
      for (std::size_t i = 0; i < kValues; ++i) {
        const float value = static_cast<float>(draw() % 20'001) - 10'000.0F;
        made.values.push_back(value * value * value * 1e-15F);
      }
    }
    made.settings.top = 0.01 * static_cast<double>(1 + draw() % 100);
    made.settings.bits = static_cast<int>(1 + draw() % 8);
    net::Frame frame;
    written(made, frame);
    for (const std::byte byte : frame) take(std::to_integer<std::uint64_t>(byte));
    for (const float value : read(made.blocks, frame).values) {
      take(std::bit_cast<std::uint32_t>(value));
    }
  }
  EXPECT_EQ(hash, 15934960710472607988U);
}

Case gaussian(std::size_t count, double scale, const PacketSettings& settings) {
  std::mt19937_64 random(11);
  std::normal_distribution<double> normal;
  Case made;
  made.settings = settings;
  for (std::size_t i = 0; i < count; ++i) {
    if (i % kValues == 0) made.blocks.push_back({static_cast<std::int64_t>(i), 0, kValues, false});
    made.values.push_back(static_cast<float>(scale * normal(random)));
  }
  return made;
}

// Of the values that are sent.
double relative_error(const Case& made) {
  net::Frame frame;
  const auto values = read_values(made, written(made, frame));
  double error = 0;
  double all = 0;
  for (std::size_t i = 0; i < values.size(); ++i) {
    if (values[i] == 0) continue;
    error += std::pow(static_cast<double>(made.values[i]) - static_cast<double>(values[i]), 2);
    all += std::pow(static_cast<double>(made.values[i]), 2);
  }
  return error / all;
}

// For comparison, a scale of 16 bits with an epsilon of 1e-6: 0.47 % at 3e-5, 5.9 % at 1e-6, 45 %
// at 1e-7.
TEST(Packet, RelativeErrorIsIndependentOfScale) {
  for (const double scale : {1e3, 1.0, 1e-4, 3e-5, 1e-6, 1e-7, 1e-9, 1e-12, 1e-20}) {
    EXPECT_NEAR(relative_error(gaussian(1 << 17, scale, {0.2, 4})), 0.0056, 0.0003) << scale;
  }
}

TEST(Packet, ErrorFallsFourfoldWithEachBit) {
  const std::vector<double> expected = {0.052,   0.046,  0.0197, 0.0056,
                                        0.00144, 3.6e-4, 9e-5,   2.3e-5};
  for (int bits = 1; bits <= 8; ++bits) {
    const double error = relative_error(gaussian(1 << 17, 1e-5, {0.2, bits}));
    EXPECT_NEAR(error / expected[static_cast<std::size_t>(bits - 1)], 1, 0.1) << bits << " bits";
  }
}

// Against 16 bits both ways: 2 · 16 / (2 · 0.1 · bits per chosen value). An ideal order-0 coder of
// symmetric four-bit levels reaches 116 to 118.
TEST(Packet, SizeMatchesForecastFromAKilobyteUp) {
  struct Promise {
    std::size_t count;
    double ratio;
  };
  for (const auto& [count, ratio] : {Promise{6'400, 126}, Promise{64'000, 129},
                                     Promise{640'000, 130}, Promise{6'400'000, 130}}) {
    const Case made = gaussian(count, 1e-5, {0.2, 4});
    net::Frame frame;
    written(made, frame);
    const double bits = 8.0 * static_cast<double>(frame.size()) / static_cast<double>(count);
    EXPECT_GE(16 / (0.1 * bits), ratio) << frame.size() << " bytes for " << count << " values";
  }
}

TEST(Packet, AdaptsToUnequalRows) {
  Case made = gaussian(1 << 18, 1, {0.2, 4});
  net::Frame even;
  written(made, even);
  for (std::size_t i = 0; i < made.values.size(); ++i) {
    if (i / 1024 % 4 != 0) made.values[i] *= 0.1F;
  }
  net::Frame uneven;
  written(made, uneven);
  EXPECT_LT(static_cast<double>(uneven.size()), 0.75 * static_cast<double>(even.size()));
}

TEST(Packet, ZerosTakeAlmostNoBytes) {
  net::Frame none;
  written({}, none);
  EXPECT_TRUE(none.empty());
  EXPECT_EQ(read({}, none), SparseValues{});

  const Case zeros = gaussian(1 << 16, 0, {0.2, 4});
  net::Frame frame;
  const SparseValues sent = written(zeros, frame);
  EXPECT_TRUE(sent.values.empty());
  EXPECT_EQ(frame.size(), 6U);
}

std::string refusal(const std::vector<Block>& blocks, std::span<const std::byte> bytes) {
  try {
    read(blocks, bytes);
  } catch (const SyncError& error) {
    EXPECT_EQ(error.kind(), SyncError::Kind::corrupt);
    return error.what();
  }
  return "";
}

TEST(Packet, RefusesInvalidHeaders) {
  const Case made = gaussian(1 << 10, 1e-5, {0.2, 4});
  net::Frame good;
  written(made, good);
  ASSERT_EQ(refusal(made.blocks, good), "");
  EXPECT_THAT(refusal(made.blocks, {}), HasSubstr("its header alone"));
  EXPECT_THAT(refusal(made.blocks, std::span(good).first(5)), HasSubstr("its header alone"));
  const auto with = [&](std::size_t at, unsigned byte) {
    net::Frame bad = good;
    bad[at] = std::byte(byte);
    return refusal(made.blocks, bad);
  };
  EXPECT_THAT(with(0, 0x14), HasSubstr("invalid"));  // another format
  EXPECT_THAT(with(0, 0x20), HasSubstr("invalid"));  // no bits
  EXPECT_THAT(with(0, 0x29), HasSubstr("invalid"));  // nine
  EXPECT_THAT(with(3, 0x7F), HasSubstr("invalid"));  // an infinite threshold
  EXPECT_THAT(with(3, 0xB7), HasSubstr("invalid"));  // a negative one
  EXPECT_THAT(with(3, 0x01), HasSubstr("invalid"));  // nearly zero
  EXPECT_THAT(with(5, 0x20), HasSubstr("invalid"));  // a step beyond the largest
  EXPECT_THAT(with(5, 0x1F), HasSubstr("invalid"));  // NaN
  net::Frame longer = good;
  for (int i = 0; i < 16; ++i) longer.push_back(std::byte{7});
  EXPECT_THAT(refusal(made.blocks, longer), HasSubstr("more or fewer bytes"));
}

TEST(Packet, DamagedBytesAreRefusedOrDecodeToFiniteValues) {
  std::size_t refused = 0;
  for (std::uint64_t seed = 0; seed < 4000; ++seed) {
    std::mt19937_64 random(seed);
    const Case made = random_case(seed % 200);
    net::Frame frame;
    written(made, frame);
    if (frame.empty()) continue;
    const std::size_t damages = 1 + random() % 4;
    for (std::size_t i = 0; i < damages; ++i) {
      frame[random() % frame.size()] ^= std::byte(1 + random() % 255);
    }
    if (random() % 4 == 0) frame.resize(random() % frame.size());
    try {
      const SparseValues sent = read(made.blocks, frame);
      ASSERT_EQ(sent.patterns.size(), made.blocks.size());
      for (const float value : sent.values) ASSERT_LT(std::abs(value), 0x1p120F) << "seed " << seed;
      // No value in padding.
      for (std::size_t b = 0; b < made.blocks.size(); ++b) {
        ASSERT_EQ(sent.patterns[b] >> made.blocks[b].count, 0) << "seed " << seed;
      }
    } catch (const SyncError& error) {
      ASSERT_STRNE(error.what(), "");
      ++refused;
    }
  }
  EXPECT_GT(refused, 1000U);
}

}  // namespace
}  // namespace strait::sync
