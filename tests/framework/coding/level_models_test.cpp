#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>

#include "framework/coding/symbol_model.h"

namespace strait::coding {
namespace {

using Rows = std::vector<std::vector<std::int32_t>>;

net::Frame coded(const std::vector<std::uint32_t>& sizes, const Rows& rows) {
  LevelModels models(sizes, SymbolModel::End::writer);
  LaneWriter writer;
  for (const auto& row : rows) models.put(writer, row);
  net::Frame message;
  writer.finish({}, message);
  return message;
}

Rows decoded(const std::vector<std::uint32_t>& sizes, std::span<const std::byte> message,
             std::size_t rows, bool& whole) {
  LevelModels models(sizes, SymbolModel::End::reader);
  LaneReader reader(message);
  Rows read(rows, std::vector<std::int32_t>(sizes.size()));
  for (auto& row : read) models.take(reader, row);
  std::vector<std::byte> plain;
  whole = reader.finish(0, plain);
  return read;
}

// Laplace distributed, of the column's mean size.
Rows random_rows(const std::vector<double>& means, std::size_t rows, std::mt19937& random) {
  Rows made(rows);
  for (auto& row : made) {
    for (const double mean : means) {
      const double size = std::exponential_distribution<double>(1 / mean)(random);
      const auto level = static_cast<std::int32_t>(std::min(std::round(size), 16384.0));
      row.push_back((random() & 1U) != 0 ? level : -level);
    }
  }
  return made;
}

// Bits of a level: of Laplace distributed values of this mean size, rounded.
double entropy(double mean) {
  const double zero = 1 - std::exp(-0.5 / mean);
  const double ratio = std::exp(-1 / mean);
  double bits = -zero * std::log2(zero);
  double share = (1 - zero) * (1 - ratio) / 2;
  for (int i = 0; i < 100000 && share > 1e-12; ++i, share *= ratio) {
    bits -= 2 * share * std::log2(share);
  }
  return bits;
}

TEST(LevelModels, LevelsOfAnySizeRoundTrip) {
  std::mt19937 random(1);
  for (const double mean : {0.01, 1.0, 40.0, 5000.0}) {
    const std::vector<double> means(37, mean);
    const std::vector<std::uint32_t> sizes(means.size(), LevelModels::kOne);
    Rows rows = random_rows(means, 50, random);
    rows[7].assign(means.size(), LevelModels::kMost);
    rows[8].assign(means.size(), -LevelModels::kMost);
    bool whole = false;
    EXPECT_EQ(decoded(sizes, coded(sizes, rows), rows.size(), whole), rows) << mean;
    EXPECT_TRUE(whole);
  }
}

TEST(LevelModels, ColumnsOfUnlikeSizesCostTheirEntropy) {
  std::mt19937 random(2);
  std::vector<double> means;
  std::vector<std::uint32_t> sizes;
  double ideal = 0;
  for (int i = 0; i < 128; ++i) {
    means.push_back(30 * std::exp2(-i / 12.0));
    sizes.push_back(static_cast<std::uint32_t>(LevelModels::kOne * means.back()));
    ideal += entropy(means.back());
  }
  constexpr std::size_t kRows = 400;
  const Rows rows = random_rows(means, kRows, random);
  const double bits = 8.0 * static_cast<double>(coded(sizes, rows).size()) / kRows;
  EXPECT_LT(bits, 1.1 * ideal);
  // What the columns are is found out where it is not known at first.
  const std::vector<std::uint32_t> unknown(sizes.size(), LevelModels::kOne);
  EXPECT_LT(8.0 * static_cast<double>(coded(unknown, rows).size()) / kRows, 1.12 * ideal);
}

TEST(LevelModels, ZerosCostNextToNothing) {
  const std::vector<std::uint32_t> sizes(256, 0);
  const Rows rows(256, std::vector<std::int32_t>(256));
  EXPECT_LT(coded(sizes, rows).size(), 256 * 256 / 1000);
}

TEST(LevelModels, AnyBytesAreLevelsWithinLimit) {
  std::mt19937 random(3);
  const std::vector<std::uint32_t> sizes(16, LevelModels::kOne);
  for (int i = 0; i < 200; ++i) {
    std::vector<std::byte> bytes(random() % 200);
    for (std::byte& byte : bytes) byte = std::byte(random());
    bool whole = false;
    for (const auto& row : decoded(sizes, bytes, 20, whole)) {
      for (const std::int32_t level : row) ASSERT_LE(std::abs(level), LevelModels::kMost);
    }
  }
}

}  // namespace
}  // namespace strait::coding
