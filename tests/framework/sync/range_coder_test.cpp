#include "framework/sync/range_coder.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include "framework/sync/symbol_model.h"

namespace strait::sync {
namespace {

// One coding operation: the place of a symbol among 2^bits, or one of a total.
struct Told {
  std::uint32_t below = 0;
  std::uint32_t size = 0;
  unsigned bits = 0;        // 0: uniform
  std::uint32_t total = 0;  // uniform
};

std::vector<Told> random_message(std::mt19937_64& random) {
  std::vector<Told> message(random() % 400);
  const auto kind = random() % 4;
  for (Told& told : message) {
    if (random() % 2 == 0) {
      told.bits = 1 + static_cast<unsigned>(random() % 24);
      const std::uint32_t all = 1U << told.bits;
      // At either end of the interval all the time: what carries run along.
      told.below = kind == 0 ? 0 : kind == 1 ? all - 1 : static_cast<std::uint32_t>(random() % all);
      told.size = kind == 2 ? all - told.below
                            : 1 + static_cast<std::uint32_t>(random() % (all - told.below));
    } else {
      told.total = 1 + static_cast<std::uint32_t>(random() % (1U << (1 + random() % 30)));
      told.below = kind == 0   ? 0
                   : kind == 1 ? told.total - 1
                               : static_cast<std::uint32_t>(random() % told.total);
      told.size = 1;
    }
  }
  return message;
}

net::Frame coded(const std::vector<Told>& message) {
  RangeEncoder encoder;
  for (const Told& told : message) {
    if (told.bits > 0) {
      encoder.put(told.below, told.size, told.bits);
    } else {
      encoder.put_uniform(told.below, told.total);
    }
  }
  net::Frame frame;
  encoder.finish(frame);
  return frame;
}

TEST(RangeCoder, ReadsWhatWasWrittenAndTakesWhatItIsWorth) {
  for (std::uint64_t seed = 0; seed < 5000; ++seed) {
    std::mt19937_64 random(seed);
    const auto message = random_message(random);
    const net::Frame frame = coded(message);
    RangeDecoder decoder(frame);
    double worth = 0;
    for (const Told& told : message) {
      if (told.bits > 0) {
        const std::uint32_t place = decoder.place(told.bits);
        ASSERT_GE(place, told.below) << "seed " << seed;
        ASSERT_LT(place - told.below, told.size) << "seed " << seed;
        decoder.take(told.below, told.size);
        worth += told.bits - std::log2(told.size);
      } else {
        ASSERT_EQ(decoder.uniform(told.total), told.below) << "seed " << seed;
        worth += std::log2(told.total);
      }
    }
    ASSERT_TRUE(decoder.finish()) << "seed " << seed;
    ASSERT_LE(static_cast<double>(frame.size()), worth * 1.002 / 8 + 2) << "seed " << seed;
  }
}

TEST(RangeCoder, AnEmptyMessageTakesNoBytes) { EXPECT_TRUE(coded({}).empty()); }

TEST(RangeCoder, FindsBytesThatNoSymbolNeeded) {
  std::mt19937_64 random(1);
  std::vector<Told> message(100, Told{0, 1, 4, 0});
  for (Told& told : message) told.below = static_cast<std::uint32_t>(random() % 16);
  net::Frame frame = coded(message);
  for (int more = 0; more < 20; ++more) frame.push_back(std::byte{1});
  RangeDecoder decoder(frame);
  for (const Told& told : message) {
    decoder.place(told.bits);
    decoder.take(told.below, told.size);
  }
  EXPECT_FALSE(decoder.finish());
}

TEST(SymbolModel, ComesCloseToTheEntropyOfWhatItSees) {
  for (std::uint64_t seed = 0; seed < 20; ++seed) {
    std::mt19937_64 random(seed);
    std::vector<double> weights(SymbolModel::kSymbols);
    for (double& weight : weights)
      weight = std::pow(0.4 + 0.03 * static_cast<double>(seed), static_cast<double>(random() % 12));
    std::discrete_distribution<std::size_t> symbols(weights.begin(), weights.end());
    double entropy = 0;
    for (const double p : symbols.probabilities()) entropy -= p > 0 ? p * std::log2(p) : 0;

    constexpr int kCount = 20'000;
    std::vector<std::size_t> sent(kCount);
    SymbolModel writer(SymbolModel::Weights{1});
    RangeEncoder encoder;
    for (std::size_t& symbol : sent) writer.put(encoder, symbol = symbols(random));
    net::Frame frame;
    encoder.finish(frame);
    SymbolModel reader(SymbolModel::Weights{1});
    RangeDecoder decoder(frame);
    for (const std::size_t symbol : sent) ASSERT_EQ(reader.take(decoder), symbol);
    EXPECT_TRUE(decoder.finish());
    EXPECT_LE(static_cast<double>(frame.size()) * 8 / kCount, entropy + 0.09) << "seed " << seed;
  }
}

TEST(SymbolModel, NoSymbolEverBecomesImpossible) {
  std::mt19937_64 random(1);
  SymbolModel writer;
  RangeEncoder encoder;
  std::vector<std::size_t> sent;
  for (int stretch = 0; stretch < 50; ++stretch) {
    const std::size_t symbol = random() % SymbolModel::kSymbols;
    sent.insert(sent.end(), 1 + random() % 3000, symbol);
  }
  for (const std::size_t symbol : sent) writer.put(encoder, symbol);
  net::Frame frame;
  encoder.finish(frame);
  SymbolModel reader;
  RangeDecoder decoder(frame);
  for (const std::size_t symbol : sent) ASSERT_EQ(reader.take(decoder), symbol);
  EXPECT_TRUE(decoder.finish());
}

}  // namespace
}  // namespace strait::sync
