#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <random>
#include <set>

#include "framework/data/sample_order.h"

namespace strait::data {
namespace {

TEST(RowMix, TakesRowsByWeight) {
  for (std::uint64_t seed = 1; seed <= 50; ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937_64 random(seed);
    std::vector<MixedFile> files;
    for (std::size_t i = 0; i <= random() % 4; ++i) {
      files.push_back({static_cast<std::int64_t>(1 + random() % 300),
                       static_cast<double>(1 + random() % 400) / 100});
    }
    const std::vector<RowChoice> chosen = mix_rows(files, seed);
    std::map<std::pair<std::int32_t, std::int64_t>, double> times;
    std::map<std::int32_t, std::int64_t> rows;
    for (const auto& [file, row] : chosen) {
      ASSERT_LT(row, files.at(static_cast<std::size_t>(file)).rows);
      ++times[{file, row}];
      ++rows[file];
    }
    for (std::size_t i = 0; i < files.size(); ++i) {
      const auto [count, weight] = files[i];
      const auto file = static_cast<std::int32_t>(i);
      EXPECT_NEAR(static_cast<double>(rows[file]), weight * static_cast<double>(count), 0.51);
      for (std::int64_t row = 0; row < count; ++row) {
        EXPECT_LT(std::abs((times[{file, row}]) - weight), 1);
      }
    }
    EXPECT_EQ(mix_rows(files, seed), chosen);
  }
}

TEST(RowMix, DrawsOtherRowsForAnotherSeedAndFile) {
  const auto drawn = [](std::uint64_t seed, std::int32_t file) {
    std::set<std::int64_t> rows;
    for (const RowChoice& one : mix_rows(std::vector<MixedFile>{{1000, 0.5}, {1000, 0.5}}, seed)) {
      if (one.file == file) rows.insert(one.row);
    }
    return rows;
  };
  EXPECT_EQ(drawn(1, 0).size(), 500U);
  EXPECT_NE(drawn(1, 0), drawn(2, 0));
  EXPECT_NE(drawn(1, 0), drawn(1, 1));
  // The same on every machine and in every release: a run that resumes has these rows.
  const auto few = mix_rows(std::vector<MixedFile>{{8, 0.5}}, 1);
  std::vector<std::int64_t> rows;
  for (const RowChoice& one : few) rows.push_back(one.row);
  EXPECT_THAT(rows, testing::ElementsAre(2, 3, 4, 5));
}

}  // namespace
}  // namespace strait::data
