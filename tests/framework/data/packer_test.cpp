#include "framework/data/packer.h"

#include <algorithm>
#include <array>
#include <map>
#include <random>
#include <set>

#include "framework/data/token_file.h"
#include "tests/framework/store/expect_store_error.h"
#include "tests/refusal_of.h"

namespace strait::data {
namespace {

Document document_of(std::int64_t length, std::int32_t first, bool whole) {
  Document document{"data/train.jsonl:9", {}, {}, whole};
  for (std::int64_t i = 0; i < length; ++i) {
    document.tokens.push_back(first + static_cast<std::int32_t>(i));
    document.is_target.push_back((first + i) % 3 == 0 ? 1 : 0);
  }
  return document;
}

// Packs into memory.
class RowPacker {
 public:
  explicit RowPacker(const PackOptions& options)
      : packer_(options, [this](std::int64_t number, const PackedRow& row) { put(number, row); }) {
    rows_.row_length = options.row;
  }
  Packer& packer() { return packer_; }
  TokenRows finish() {
    packer_.finish();
    EXPECT_EQ(rows_.rows(), packer_.rows());
    return rows_;
  }

 private:
  void put(std::int64_t number, const PackedRow& row) {
    const std::int64_t start = number * rows_.row_length;
    const auto end = static_cast<std::size_t>(start + rows_.row_length);
    if (rows_.input_ids.size() < end) {
      rows_.input_ids.resize(end, -7);
      rows_.loss_mask.resize(end, 7);
      rows_.document.resize(end, -7);
    }
    std::ranges::copy(row.input_ids, rows_.input_ids.begin() + start);
    std::ranges::copy(row.loss_mask, rows_.loss_mask.begin() + start);
    std::ranges::copy(row.document, rows_.document.begin() + start);
  }

  TokenRows rows_;
  Packer packer_;
};

TokenRows pack(const PackOptions& options, const std::vector<Document>& documents) {
  RowPacker rows(options);
  for (const Document& document : documents) rows.packer().add(document);
  return rows.finish();
}

constexpr std::array kAllPackings = {Packing::first_fit, Packing::decreasing, Packing::single};

TEST(Packer, FillsRowsFirstFitAndPads) {
  const TokenRows rows = pack(
      {.row = 6}, {document_of(4, 10, true), document_of(5, 20, true), document_of(2, 32, true)});
  EXPECT_EQ(rows.rows(), 2);
  EXPECT_THAT(rows.input_ids, testing::ElementsAre(10, 11, 12, 13, 32, 33, 20, 21, 22, 23, 24, 0));
  EXPECT_THAT(rows.document, testing::ElementsAre(0, 0, 0, 0, 1, 1, 0, 0, 0, 0, 0, -1));
  EXPECT_THAT(rows.loss_mask, testing::ElementsAre(0, 0, 1, 0, 0, 1, 0, 1, 0, 0, 1, 0));
}

TEST(Packer, PlacesTheLongestFirstAndKeepsTheOrderOfTheFile) {
  const TokenRows rows = pack({.row = 6, .packing = Packing::decreasing},
                              {document_of(2, 11, true), document_of(3, 20, true),
                               document_of(4, 30, true), document_of(3, 40, true)});
  EXPECT_THAT(rows.input_ids, testing::ElementsAre(11, 12, 30, 31, 32, 33, 20, 21, 22, 40, 41, 42));
}

TEST(Packer, GivesEachRecordARowOfItsOwn) {
  const TokenRows rows = pack({.row = 4, .packing = Packing::single},
                              {document_of(2, 11, true), document_of(5, 19, false)});
  EXPECT_THAT(rows.input_ids, testing::ElementsAre(11, 12, 0, 0, 19, 20, 21, 22));
}

// A step that takes such a row alone would have no loss.
TEST(Packer, LeavesOutPiecesFromWhichNothingIsLearnt) {
  const Document prompt{"f:1", {1, 2, 3, 4, 5, 6, 7, 8, 9}, {0, 0, 0, 0, 0, 0, 0, 0, 1}, true};
  const Document empty{"f:2", {10}, {1}, false};
  for (const Packing packing : kAllPackings) {
    RowPacker rows({.row = 4, .too_long = TooLong::split, .packing = packing, .overlap = 1});
    for (const auto& document : {prompt, empty}) rows.packer().add(document);
    EXPECT_THAT(rows.finish().input_ids, testing::ElementsAre(7, 8, 9, 0));
    EXPECT_EQ(rows.packer().long_documents(),
              (LongDocuments{.split = 1, .pieces_without_target = 3}));
  }
}

TEST(Packer, CutsALongTextIntoRows) {
  const TokenRows rows = pack({.row = 4}, {document_of(10, 0, false)});
  EXPECT_THAT(rows.input_ids, testing::ElementsAre(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 0, 0));
  EXPECT_THAT(rows.document, testing::ElementsAre(0, 0, 0, 0, 0, 0, 0, 0, 0, 0, -1, -1));
}

TEST(Packer, RepeatsTokensOfALongTextAsContextOnly) {
  Document text{"f", {1, 2, 3, 4, 5, 6, 7, 8}, std::vector<std::uint8_t>(8, 1), false};
  const TokenRows rows = pack({.row = 4, .overlap = 2}, {text});
  EXPECT_THAT(rows.input_ids, testing::ElementsAre(1, 2, 3, 4, 3, 4, 5, 6, 5, 6, 7, 8));
  EXPECT_THAT(rows.loss_mask, testing::ElementsAre(1, 1, 1, 1, 0, 0, 1, 1, 0, 0, 1, 1));
}

// Whatever the packing: with overlap each target is learnt once, the first of a document never.
TEST(Packer, LearnsEachTokenOfAnOverlappingTextOnce) {
  for (std::uint64_t seed = 1; seed <= 60; ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937_64 random(seed);
    PackOptions options;
    options.row = static_cast<std::int64_t>(2 + random() % 20);
    options.overlap = static_cast<std::int64_t>(1 + random() % (options.row - 1));
    options.packing = kAllPackings[random() % kAllPackings.size()];
    std::vector<Document> documents;
    std::set<std::int32_t> expected;
    std::int32_t next = 1;
    for (int i = 0; i < 20; ++i) {
      documents.push_back(document_of(static_cast<std::int64_t>(1 + random() % 90), next, false));
      const Document& made = documents.back();
      for (std::size_t t = 1; t < made.tokens.size(); ++t) {
        if (made.is_target[t] == 1) expected.insert(made.tokens[t]);
      }
      next += static_cast<std::int32_t>(made.tokens.size());
    }
    const TokenFile file(pack(options, documents), "packed");
    std::int64_t targets = 0;
    std::set<std::int32_t> learnt;
    for (std::int64_t row = 0; row < file.rows(); ++row) {
      const store::SampleId sample{row};
      targets += std::ssize(file.targets(sample));
      for (std::size_t t = 1; t < static_cast<std::size_t>(file.length(sample)); ++t) {
        const bool goes_on = file.documents(sample)[t] == file.documents(sample)[t - 1];
        if (goes_on && file.loss_mask(sample)[t] == 1) learnt.insert(file.tokens(sample)[t]);
      }
    }
    EXPECT_EQ(learnt, expected);
    EXPECT_EQ(targets, std::ssize(expected));
  }
}

TEST(Packer, PacksATextInPartsAsIfItCameAtOnce) {
  for (std::uint64_t seed = 1; seed <= 100; ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937_64 random(seed);
    PackOptions options;
    options.row = static_cast<std::int64_t>(2 + random() % 20);
    options.overlap = static_cast<std::int64_t>(random() % options.row);
    options.packing = kAllPackings[random() % kAllPackings.size()];
    RowPacker whole(options);
    RowPacker parts(options);
    std::int32_t next = 1;
    for (int i = 0; i < 5; ++i) {
      const Document text = document_of(static_cast<std::int64_t>(random() % 200), next, false);
      next += static_cast<std::int32_t>(text.tokens.size());
      whole.packer().add(text);
      for (std::size_t from = 0; from <= text.tokens.size();) {
        const std::size_t count = random() % 60;
        Document part{text.origin, {}, {}, false, from + count > text.tokens.size()};
        for (std::size_t t = from; t < std::min(from + count, text.tokens.size()); ++t) {
          part.tokens.push_back(text.tokens[t]);
          part.is_target.push_back(text.is_target[t]);
        }
        parts.packer().add(part);
        if (part.last) break;
        from += count;
      }
    }
    EXPECT_EQ(parts.finish(), whole.finish());
  }
}

TEST(Packer, RefusesARecordLongerThanARowWithBothLengths) {
  RowPacker rows({.row = 8});
  rows.packer().add(document_of(8, 0, true));
  store::expect_store_error(store::StoreError::Kind::bad_input,
                            {"data/train.jsonl:9", "9 tokens", "a row has 8", "data.row"},
                            [&] { rows.packer().add(document_of(9, 0, true)); });
}

// Packs random documents whose tokens all differ, so that each can be found again. Of four tokens
// in a row one is learnt, so what is left out are ends of documents.
TEST(Packer, KeepsEveryTokenOnceWithItsMarkAndWholeDocumentsTogether) {
  for (std::uint64_t seed = 1; seed <= 40; ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937_64 random(seed);
    const auto length = static_cast<std::int64_t>(4 + random() % 60);
    RowPacker packed({.row = length, .packing = kAllPackings[seed % kAllPackings.size()]});
    std::map<std::int32_t, std::size_t> document_of_token;
    std::vector<bool> whole;
    std::int32_t next = 1;
    for (std::size_t i = 0; i < 300; ++i) {
      whole.push_back(random() % 2 == 0);
      const auto limit = static_cast<std::uint64_t>(whole[i] ? length : 3 * length);
      const auto size = static_cast<std::int64_t>(random() % (limit + 1));
      for (std::int32_t token = next; token < next + size; ++token) document_of_token[token] = i;
      packed.packer().add(document_of(size, next, whole[i]));
      next += static_cast<std::int32_t>(size);
    }
    const TokenFile file(packed.finish(), "packed");
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
    for (const auto& [token, document] : document_of_token) {
      const auto before = document_of_token.find(token - 1);
      if (before == document_of_token.end() || before->second != document) continue;
      ASSERT_NE(token % 3, 0) << "a target lost: " << token;
    }
  }
}

TEST(Packer, PacksShortDocumentsDensely) {
  RowPacker first_fit({.row = 128});
  RowPacker decreasing({.row = 128, .packing = Packing::decreasing});
  std::mt19937_64 random(5);
  std::int64_t tokens = 0;
  for (int i = 0; i < 2000; ++i) {
    const auto size = static_cast<std::int64_t>(20 + random() % 60);
    tokens += size;
    first_fit.packer().add(document_of(size, 1, true));
    decreasing.packer().add(document_of(size, 1, true));
  }
  const auto fill = [&](RowPacker& packed) {
    return static_cast<double>(tokens) / static_cast<double>(packed.finish().rows() * 128);
  };
  EXPECT_GT(fill(first_fit), 0.93);
  EXPECT_GT(fill(decreasing), 0.98);
}

TEST(Packer, RefusesWhatItsCallerMustNotDo) {
  const auto ignore = [](std::int64_t, const PackedRow&) {};
  EXPECT_THROW(Packer({.row = 1}, ignore), std::invalid_argument);
  EXPECT_THROW(Packer({.row = 4, .overlap = 4}, ignore), std::invalid_argument);
  Packer packer({.row = 4}, ignore);
  EXPECT_THROW(packer.add({"f", {1, 2}, {1}, false}), std::invalid_argument);
}

TEST(Packer, AppliesTooLongOption) {
  const Document fits{"f:1", {1, 2}, {0, 1}, true};
  const Document learnable{"f:2", {3, 4, 5, 6, 7}, {0, 1, 1, 1, 1}, true};
  const Document hopeless{"f:3", {8, 8, 8, 8, 9}, {0, 0, 0, 0, 1}, true};
  const auto packed = [&](TooLong rule, LongDocuments& found) {
    RowPacker rows({.row = 4, .too_long = rule});
    for (const auto& document : {fits, learnable, hopeless}) rows.packer().add(document);
    found = rows.packer().long_documents();
    return rows.finish().input_ids;
  };
  LongDocuments found;
  EXPECT_THAT(packed(TooLong::drop, found), testing::ElementsAre(1, 2, 0, 0));
  EXPECT_EQ(found, (LongDocuments{.dropped = 2}));
  EXPECT_THAT(packed(TooLong::truncate, found), testing::ElementsAre(1, 2, 0, 0, 3, 4, 5, 6));
  EXPECT_EQ(found, (LongDocuments{.dropped = 1, .truncated = 1}));
  EXPECT_THAT(packed(TooLong::split, found), testing::ElementsAre(1, 2, 0, 0, 3, 4, 5, 6));
  EXPECT_EQ(found, (LongDocuments{.split = 2, .pieces_without_target = 3}));
  const auto refused = [&](const PackOptions& options) {
    return refusal_of<store::StoreError>([&] { RowPacker(options).packer().add(learnable); });
  };
  EXPECT_THAT(refused({.row = 4}), testing::HasSubstr("a row has 4; make data.row longer, or set"));
  EXPECT_THAT(refused({.row = 4, .remedy = "do that"}),
              testing::HasSubstr("a row has 4; do that ("));
}

}  // namespace
}  // namespace strait::data
