#include "framework/coding/lane_coder.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include "framework/coding/symbol_model.h"

namespace strait::coding {
namespace {

using End = SymbolModel::End;

// The cumulative frequencies of a symbol, of 2^bits.
struct CodedSymbol {
  std::uint32_t below = 0;
  std::uint32_t size = 1;
  unsigned bits = 0;
};

std::vector<CodedSymbol> random_message(std::mt19937_64& random) {
  std::vector<CodedSymbol> message(random() % 800);
  const auto kind = random() % 4;
  for (CodedSymbol& symbol : message) {
    symbol.bits = static_cast<unsigned>(random() % (kMostScaleBits + 1));
    const std::uint32_t all = 1U << symbol.bits;
    // Also symbols at either end of the range, and one with the whole range.
    symbol.below = kind == 0 ? 0 : kind == 1 ? all - 1 : static_cast<std::uint32_t>(random() % all);
    symbol.size = kind == 2 ? all - symbol.below
                            : 1 + static_cast<std::uint32_t>(random() % (all - symbol.below));
  }
  return message;
}

std::vector<std::byte> random_bytes(std::mt19937_64& random, std::size_t count) {
  std::vector<std::byte> bytes(count);
  for (std::byte& byte : bytes) byte = std::byte(random());
  return bytes;
}

net::Frame coded(const std::vector<CodedSymbol>& message, std::span<const std::byte> plain) {
  LaneWriter writer;
  for (std::size_t i = 0; i < message.size(); ++i) {
    writer.put(i * i % kLanes, message[i].below, message[i].size, message[i].bits);
  }
  net::Frame frame;
  writer.finish(plain, frame);
  return frame;
}

// Whether the symbols are decoded as they were encoded.
bool holds(const std::vector<CodedSymbol>& message, LaneReader& reader) {
  for (std::size_t i = 0; i < message.size(); ++i) {
    const std::uint32_t slot = reader.peek(i * i % kLanes, message[i].bits);
    if (slot < message[i].below || slot - message[i].below >= message[i].size) return false;
    reader.take(i * i % kLanes, message[i].below, message[i].size, message[i].bits);
  }
  return true;
}

TEST(LaneCoder, RoundTripsNearTheEntropy) {
  for (std::uint64_t seed = 0; seed < 5000; ++seed) {
    std::mt19937_64 random(seed);
    const auto message = random_message(random);
    const auto plain = random_bytes(random, random() % 40);
    const net::Frame frame = coded(message, plain);
    LaneReader reader(frame);
    ASSERT_TRUE(holds(message, reader)) << "seed " << seed;
    std::vector<std::byte> read;
    ASSERT_TRUE(reader.finish(plain.size(), read)) << "seed " << seed;
    ASSERT_EQ(read, plain) << "seed " << seed;
    double worth = static_cast<double>(std::max(plain.size(), kPlainInLanes));
    for (const CodedSymbol& symbol : message) worth += (symbol.bits - std::log2(symbol.size)) / 8;
    // The remainder of each lane is less than a word and its highest bit.
    ASSERT_LE(static_cast<double>(frame.size()), worth * 1.002 + 3 * kLanes) << "seed " << seed;
  }
}

TEST(LaneCoder, RefusesMissingOrExtraBytes) {
  std::mt19937_64 random(1);
  std::vector<CodedSymbol> message(100, CodedSymbol{0, 1, 4});
  for (CodedSymbol& symbol : message) symbol.below = static_cast<std::uint32_t>(random() % 16);
  for (const std::size_t plain : {0U, 5U, 12U, 30U}) {
    const net::Frame good = coded(message, random_bytes(random, plain));
    std::vector<std::byte> read;
    for (int more = -20; more <= 20; ++more) {
      net::Frame frame = good;
      frame.resize(static_cast<std::size_t>(static_cast<int>(good.size()) + more));
      LaneReader reader(frame);
      const bool symbols = holds(message, reader);
      EXPECT_EQ(symbols && reader.finish(plain, read), more == 0) << more;
    }
  }
  // Nonzero bytes in the lanes where no plain bytes are.
  std::vector<std::byte> read;
  const net::Frame frame = coded(message, random_bytes(random, 8));
  LaneReader reader(frame);
  ASSERT_TRUE(holds(message, reader));
  EXPECT_FALSE(reader.finish(3, read));
}

TEST(LaneCoder, RefusesMessageShorterThanItsLanes) {
  EXPECT_TRUE(coded({}, {}).empty());
  std::vector<std::byte> none;
  EXPECT_TRUE(LaneReader({}).finish(0, none));
  for (std::size_t size = 1; size < 20; ++size) {
    const net::Frame frame(size);
    const LaneReader reader(frame);
    std::vector<std::byte> read;
    EXPECT_FALSE(reader.finish(0, read));
  }
}

net::Frame modelled(const std::vector<std::size_t>& symbols, const SymbolModel::Weights& guess) {
  SymbolModel model(guess, End::writer);
  LaneWriter writer;
  for (std::size_t i = 0; i < symbols.size(); ++i) model.put(writer, i % kLanes, symbols[i]);
  net::Frame frame;
  writer.finish({}, frame);
  return frame;
}

void expect_read(const net::Frame& frame, const std::vector<std::size_t>& symbols,
                 const SymbolModel::Weights& guess) {
  SymbolModel model(guess, End::reader);
  LaneReader reader(frame);
  for (std::size_t i = 0; i < symbols.size(); ++i) {
    ASSERT_EQ(model.take(reader, i % kLanes), symbols[i]) << i;
  }
  std::vector<std::byte> plain;
  EXPECT_TRUE(reader.finish(0, plain));
}

TEST(SymbolModel, ComesCloseToTheEntropy) {
  for (std::uint64_t seed = 0; seed < 20; ++seed) {
    std::mt19937_64 random(seed);
    std::vector<double> weights(SymbolModel::kSymbols);
    for (double& weight : weights)
      weight = std::pow(0.4 + 0.03 * static_cast<double>(seed), static_cast<double>(random() % 12));
    std::discrete_distribution<std::size_t> symbols(weights.begin(), weights.end());
    double entropy = 0;
    for (const double p : symbols.probabilities()) entropy -= p > 0 ? p * std::log2(p) : 0;

    std::vector<std::size_t> sent(20'000);
    for (std::size_t& symbol : sent) symbol = symbols(random);
    const net::Frame frame = modelled(sent, {1});
    expect_read(frame, sent, {1});
    EXPECT_LE(static_cast<double>(frame.size()) * 8 / static_cast<double>(sent.size()),
              entropy + 0.05)
        << "seed " << seed;
  }
}

TEST(SymbolModel, EverySymbolStaysPossible) {
  std::mt19937_64 random(1);
  std::vector<std::size_t> sent;
  for (int stretch = 0; stretch < 50; ++stretch) {
    const std::size_t symbol = random() % SymbolModel::kSymbols;
    sent.insert(sent.end(), 1 + random() % 3000, symbol);
  }
  expect_read(modelled(sent, {}), sent, {});
}

}  // namespace
}  // namespace strait::coding
