#include "framework/store/packer.h"

#include <map>
#include <random>

#include "framework/tensors/token_file.h"
#include "tests/framework/store/expect_store_error.h"

namespace strait::tensors {
namespace {

store::Document document_of(std::int64_t length, std::int32_t first, bool whole) {
  store::Document document{"data/train.jsonl:9", {}, {}, whole};
  for (std::int64_t i = 0; i < length; ++i) {
    document.tokens.push_back(first + static_cast<std::int32_t>(i));
    document.is_target.push_back((first + i) % 3 == 0 ? 1 : 0);
  }
  return document;
}

TEST(Packer, FillsRowsFirstFitAndPads) {
  store::Packer packer(6);
  packer.add(document_of(4, 10, true));
  packer.add(document_of(5, 20, true));
  packer.add(document_of(2, 30, true));
  const store::TokenRows rows = packer.finish();
  EXPECT_EQ(rows.rows(), 2);
  EXPECT_THAT(rows.input_ids, testing::ElementsAre(10, 11, 12, 13, 30, 31, 20, 21, 22, 23, 24, 0));
  EXPECT_THAT(rows.document, testing::ElementsAre(0, 0, 0, 0, 1, 1, 0, 0, 0, 0, 0, -1));
  EXPECT_THAT(rows.loss_mask, testing::ElementsAre(0, 0, 1, 0, 1, 0, 0, 1, 0, 0, 1, 0));
  EXPECT_EQ(packer.finish().rows(), 0);
}

TEST(Packer, CutsALongTextIntoRows) {
  store::Packer packer(4);
  packer.add(document_of(10, 1, false));
  const store::TokenRows rows = packer.finish();
  EXPECT_THAT(rows.input_ids, testing::ElementsAre(1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 0, 0));
  EXPECT_THAT(rows.document, testing::ElementsAre(0, 0, 0, 0, 0, 0, 0, 0, 0, 0, -1, -1));
}

TEST(Packer, RefusesARecordLongerThanARowWithBothLengths) {
  store::Packer packer(8);
  packer.add(document_of(8, 0, true));
  store::expect_store_error(store::StoreError::Kind::bad_input,
                            {"data/train.jsonl:9", "9 tokens", "a row has 8", "data.row"},
                            [&] { packer.add(document_of(9, 0, true)); });
}

// Packs random documents whose tokens all differ, so that each can be found again.
TEST(Packer, KeepsEveryTokenOnceWithItsMarkAndWholeDocumentsTogether) {
  for (std::uint64_t seed = 1; seed <= 40; ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937_64 random(seed);
    const auto length = static_cast<std::int64_t>(2 + random() % 60);
    store::Packer packer(length);
    std::map<std::int32_t, std::size_t> document_of_token;
    std::vector<bool> whole;
    std::int32_t next = 1;
    for (std::size_t i = 0; i < 300; ++i) {
      whole.push_back(random() % 2 == 0);
      const auto limit = static_cast<std::uint64_t>(whole[i] ? length : 3 * length);
      const auto size = static_cast<std::int64_t>(random() % (limit + 1));
      for (std::int32_t token = next; token < next + size; ++token) document_of_token[token] = i;
      packer.add(document_of(size, next, whole[i]));
      next += static_cast<std::int32_t>(size);
    }
    const TokenFile file(packer.finish(), "packed");
    std::map<std::size_t, std::int64_t> row_of_whole;
    for (std::int64_t row = 0; row < file.rows(); ++row) {
      const store::SampleId sample{row};
      for (std::int64_t t = 0; t < file.length(sample); ++t) {
        const auto at = static_cast<std::size_t>(t);
        const std::int32_t token = file.tokens(sample)[at];
        const auto found = document_of_token.find(token);
        ASSERT_NE(found, document_of_token.end()) << "twice or invented: " << token;
        ASSERT_EQ(file.loss_mask(sample)[at], token % 3 == 0 ? 1 : 0);
        if (t > 0 && file.documents(sample)[at] == file.documents(sample)[at - 1]) {
          ASSERT_EQ(token, file.tokens(sample)[at - 1] + 1);
        }
        if (whole[found->second]) {
          ASSERT_EQ(row_of_whole.emplace(found->second, row).first->second, row);
        }
        document_of_token.erase(found);
      }
    }
    EXPECT_TRUE(document_of_token.empty()) << document_of_token.size() << " tokens lost";
  }
}

TEST(Packer, PacksShortDocumentsDensely) {
  store::Packer packer(128);
  std::mt19937_64 random(5);
  std::int64_t tokens = 0;
  for (int i = 0; i < 2000; ++i) {
    const auto size = static_cast<std::int64_t>(20 + random() % 60);
    tokens += size;
    packer.add(document_of(size, 1, true));
  }
  const store::TokenRows rows = packer.finish();
  EXPECT_GT(static_cast<double>(tokens), 0.93 * static_cast<double>(rows.rows() * 128));
}

TEST(Packer, RefusesWhatItsCallerMustNotDo) {
  EXPECT_THROW(store::Packer(1), std::invalid_argument);
  store::Packer packer(4);
  EXPECT_THROW(packer.add({"f", {1, 2}, {1}, false}), std::invalid_argument);
}

TEST(Packer, TreatsLongDocumentsAsItIsTold) {
  const store::Document fits{"f:1", {1, 2}, {0, 1}, true};
  const store::Document learnable{"f:2", {3, 4, 5, 6, 7}, {0, 1, 1, 1, 1}, true};
  const store::Document hopeless{"f:3", {8, 8, 8, 8, 9}, {0, 0, 0, 0, 1}, true};
  const auto packed = [&](store::TooLong rule, store::LongDocuments& found) {
    store::Packer packer(4, rule);
    for (const store::Document& document : {fits, learnable, hopeless}) packer.add(document);
    found = packer.long_documents();
    return packer.finish().input_ids;
  };
  store::LongDocuments found;
  EXPECT_THAT(packed(store::TooLong::drop, found), testing::ElementsAre(1, 2, 0, 0));
  EXPECT_EQ(found, (store::LongDocuments{.dropped = 2}));
  EXPECT_THAT(packed(store::TooLong::truncate, found),
              testing::ElementsAre(1, 2, 0, 0, 3, 4, 5, 6));
  EXPECT_EQ(found, (store::LongDocuments{.dropped = 1, .truncated = 1}));
  EXPECT_THAT(packed(store::TooLong::split, found),
              testing::ElementsAre(1, 2, 7, 9, 3, 4, 5, 6, 8, 8, 8, 8));
  EXPECT_EQ(found, (store::LongDocuments{.split = 2}));
}

}  // namespace
}  // namespace strait::tensors
