#include <algorithm>
#include <numeric>
#include <random>

#include "framework/data/file_packer.h"
#include "tests/framework/store/expect_store_error.h"
#include "tests/scratch_directory.h"

namespace strait::data {
namespace {

constexpr std::int64_t kLength = 5;

PackedRow row_of(std::int64_t number) {
  const auto first = static_cast<std::int32_t>(number * kLength);
  PackedRow row{std::vector<std::int32_t>(kLength), std::vector<std::uint8_t>(kLength),
                std::vector<std::int32_t>(kLength)};
  for (std::int32_t i = 0; i < kLength; ++i) {
    const auto at = static_cast<std::size_t>(i);
    row.input_ids[at] = first + i;
    row.loss_mask[at] = static_cast<std::uint8_t>((first + i) % 2);
    row.document[at] = -first - i;
  }
  return row;
}

TEST(RowSpool, HoldsRowsInWhateverOrderAndPlaceTheyAre) {
  const ScratchDirectory folder;
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937_64 random(seed);
    std::vector<std::int64_t> order(1 + random() % 50);
    std::iota(order.begin(), order.end(), 0);
    std::ranges::shuffle(order, random);
    // From none in memory to all.
    RowSpool spool(
        kLength, [&] { return folder.path(); }, random() % 3000);
    for (const std::int64_t number : order) spool.put(number, row_of(number));
    const RowTables tables = spool.finish();
    ASSERT_EQ(tables.rows, std::ssize(order));
    for (std::size_t i = 0; i < tables.input_ids.size(); ++i) {
      const auto value = static_cast<std::int32_t>(i);
      ASSERT_EQ(tables.input_ids[i], value);
      ASSERT_EQ(tables.loss_mask[i], value % 2);
      ASSERT_EQ(tables.document[i], -value);
    }
    // Nothing can be left of a process that is killed.
    EXPECT_TRUE(std::filesystem::is_empty(folder.path()));
  }
}

TEST(RowSpool, NamesADirectoryThatCannotBeUsed) {
  RowSpool spool(
      kLength, [] { return "/nowhere"; }, 0);
  expect_store_error(store::StoreError::Kind::bad_input, {"/nowhere"},
                     [&] { spool.put(0, row_of(0)); });
}

TEST(Preparation, SaysHowFarAFileIsReadAndWhenItWillBe) {
  EXPECT_EQ(preparation_text({"train.jsonl", 12'000, 3'100'000, 12'500'000, 50'000'000, 10}),
            "reading train.jsonl: 12000 records, 3.1 M tokens, 12.5 of 50.0 MB (25 %), 30 s left");
  EXPECT_EQ(preparation_text({"empty", 0, 0, 0, 0, 0}),
            "reading empty: 0 records, 0.0 M tokens, 0.0 of 0.0 MB (0 %)");
}

}  // namespace
}  // namespace strait::data
