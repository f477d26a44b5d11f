#include "framework/data/token_file.h"

#include <ATen/ATen.h>

#include "framework/tensors/safetensors_writer.h"
#include "tests/framework/store/expect_store_error.h"
#include "tests/scratch_directory.h"

namespace strait::data {
namespace {

using tensors::NamedTensor;
using tensors::write_safetensors;

TokenRows two_rows() {
  return {.row_length = 4,
          .input_ids = {5, 6, 7, 8, 9, 1, 0, 0},
          .loss_mask = {1, 1, 1, 0, 0, 1, 0, 0},
          .document = {0, 0, 1, 1, 0, 0, -1, -1}};
}

TEST(TokenFile, ReadsBackWhatWasWritten) {
  const ScratchDirectory folder;
  write_token_file(folder / "t", TokenFile(two_rows(), "memory"), {{"tokenizer", "bytes"}});
  const TokenFile file(folder / "t");
  EXPECT_EQ(file.rows(), 2);
  EXPECT_EQ(file.row_length(), 4);
  EXPECT_EQ(file.largest_token(), 9);
  EXPECT_EQ(file.metadata().at("tokenizer"), "bytes");
  EXPECT_EQ(file.hash(), TokenFile(two_rows(), "memory").hash());
  const store::SampleId second{1};
  EXPECT_THAT(file.tokens(second), testing::ElementsAre(9, 1, 0, 0));
  EXPECT_THAT(file.loss_mask(second), testing::ElementsAre(0, 1, 0, 0));
  EXPECT_THAT(file.documents(second), testing::ElementsAre(0, 0, -1, -1));
  EXPECT_THROW(file.tokens(store::SampleId{2}), std::out_of_range);
  EXPECT_THROW(file.tokens(store::SampleId{-1}), std::out_of_range);
}

// A header of any length, as other writers make it, may put numbers at any byte.
TEST(TokenFile, ReadsTablesThatAreNotAligned) {
  const ScratchDirectory folder;
  write_token_file(folder / "t", TokenFile(two_rows(), "memory"));
  std::string bytes = ScratchDirectory::read(folder / "t");
  ++bytes[0];
  bytes.insert(8 + static_cast<unsigned char>(bytes[0]) - 1, 1, ' ');
  ScratchDirectory::write(folder / "moved", bytes);
  EXPECT_EQ(TokenFile(folder / "moved").hash(), TokenFile(two_rows(), "memory").hash());
}

TEST(TokenFile, WritesTheBytesOfASafetensorsFile) {
  const ScratchDirectory folder;
  const TokenRows rows = two_rows();
  const TokenFile file(rows, "memory");
  write_token_file(folder / "t", file, {{"tokenizer", "bytes"}});
  const auto table = [](const auto& values, at::ScalarType type) {
    return at::tensor(std::vector<std::int64_t>(values.begin(), values.end()), at::kLong)
        .view({2, 4})
        .to(type);
  };
  write_safetensors(folder / "expected",
                    std::vector<NamedTensor>{{"input_ids", table(rows.input_ids, at::kInt)},
                                             {"loss_mask", table(rows.loss_mask, at::kByte)},
                                             {"document", table(rows.document, at::kInt)}},
                    {{"tokenizer", "bytes"}});
  EXPECT_EQ(ScratchDirectory::read(folder / "t"), ScratchDirectory::read(folder / "expected"));
  write_token_file(folder / "second", file, {}, 1, 1);
  const TokenFile second(folder / "second");
  EXPECT_EQ(second.rows(), 1);
  EXPECT_THAT(second.tokens(store::SampleId{0}), testing::ElementsAre(9, 1, 0, 0));
}

TEST(TokenFile, ShowsRowsOfSeveralFilesAsOne) {
  const auto file = std::make_shared<const TokenFile>(two_rows(), "memory");
  TokenRows others = two_rows();
  others.input_ids[0] = 55;
  const auto other = std::make_shared<const TokenFile>(others, "memory");
  const TokenFile mixed({file, other}, {{1, 0}, {0, 0}, {0, 1}, {1, 0}});
  EXPECT_EQ(mixed.rows(), 4);
  EXPECT_EQ(mixed.largest_token(), 55);
  EXPECT_THAT(mixed.tokens(store::SampleId{3}), testing::ElementsAre(55, 6, 7, 8));
  EXPECT_EQ(mixed.length(store::SampleId{2}), 2);
  EXPECT_THROW(mixed.tokens(store::SampleId{4}), std::out_of_range);
  const ScratchDirectory folder;
  write_token_file(folder / "t", mixed);
  EXPECT_EQ(TokenFile(folder / "t").hash(), mixed.hash());
  EXPECT_EQ(TokenFile({file, other}, {{0, 0}, {0, 1}}).hash(), file->hash());
}

TEST(TokenFile, KnowsLengthsWithoutPaddingAndTargetsWithoutFirstTokens) {
  const TokenFile file(two_rows(), "memory");
  EXPECT_EQ(file.length(store::SampleId{0}), 4);
  EXPECT_EQ(file.length(store::SampleId{1}), 2);
  EXPECT_THAT(file.document_lengths(store::SampleId{0}), testing::ElementsAre(2, 2));
  EXPECT_THAT(file.document_lengths(store::SampleId{1}), testing::ElementsAre(2));
  // 0 and 2 are first, 3 is masked out.
  EXPECT_THAT(file.targets(store::SampleId{0}), testing::ElementsAre(1));
  EXPECT_THAT(file.targets(store::SampleId{1}), testing::ElementsAre(1));
}

TEST(TokenFile, TakesWholeRowsAsTargetsWhenNothingElseIsSaid) {
  const ScratchDirectory folder;
  write_safetensors(folder / "t",
                    std::vector<NamedTensor>{{"input_ids", at::ones({2, 3}, at::kInt)}});
  const TokenFile file(folder / "t");
  EXPECT_EQ(file.length(store::SampleId{1}), 3);
  EXPECT_THAT(file.document_lengths(store::SampleId{1}), testing::ElementsAre(3));
  EXPECT_THAT(file.targets(store::SampleId{1}), testing::ElementsAre(1, 2));
}

TEST(TokenFile, HashDiffersForEveryTable) {
  const std::string hash = TokenFile(two_rows(), "memory").hash();
  TokenRows other = two_rows();
  other.input_ids[0] = 4;
  EXPECT_NE(TokenFile(other, "memory").hash(), hash);
  other = two_rows();
  other.loss_mask[0] = 0;
  EXPECT_NE(TokenFile(other, "memory").hash(), hash);
  other = two_rows();
  other.document[3] = 2;
  EXPECT_NE(TokenFile(other, "memory").hash(), hash);
}

TEST(TokenFile, NamesFileRowAndPlaceOfWhatIsWrong) {
  const auto refused = [](const std::function<void(TokenRows&)>& damage,
                          const std::vector<std::string>& words) {
    TokenRows rows = two_rows();
    damage(rows);
    store::expect_store_error(store::StoreError::Kind::bad_input, words,
                              [&] { TokenFile file(rows, "data/train.tokens"); });
  };
  refused([](TokenRows& rows) { rows.input_ids[5] = -3; },
          {"data/train.tokens: row 1: token -3 at place 1"});
  refused([](TokenRows& rows) { rows.loss_mask[2] = 3; }, {"row 0: loss_mask 3 at place 2"});
  refused([](TokenRows& rows) { rows.document[3] = 0; }, {"row 0: document 0", "must not fall"});
  refused([](TokenRows& rows) { rows.document[7] = 0; }, {"row 1: document 0", "follows padding"});
  refused([](TokenRows& rows) { rows.document[1] = -2; }, {"row 0: document -2"});
  refused([](TokenRows& rows) { rows.document[4] = rows.document[5] = -1; },
          {"row 1: it holds nothing but padding"});
  refused([](TokenRows& rows) { rows.input_ids.pop_back(); }, {"do not make rows of 4"});
  refused([](TokenRows& rows) { rows = TokenRows{}; }, {"do not make rows of 0"});
}

TEST(TokenFile, RefusesTensorsOfAnotherShapeOrType) {
  const ScratchDirectory folder;
  const auto refused = [&](std::vector<NamedTensor> tensors,
                           const std::vector<std::string>& words) {
    write_safetensors(folder / "t", tensors);
    store::expect_store_error(store::StoreError::Kind::bad_input, words,
                              [&] { TokenFile file(folder / "t"); });
  };
  const at::Tensor ids = at::ones({2, 3}, at::kInt);
  refused({{"ids", ids}}, {"no tensor \"input_ids\""});
  refused({{"input_ids", ids.to(at::kLong)}}, {"input_ids", "I64 [2, 3]", "expected I32 [2, 3]"});
  refused({{"input_ids", ids.flatten()}}, {"input_ids", "[rows, row]"});
  refused({{"input_ids", at::ones({0, 3}, at::kInt)}}, {"at least one row"});
  refused({{"input_ids", ids}, {"loss_mask", at::ones({3, 2}, at::kByte)}},
          {"loss_mask", "U8 [3, 2]", "expected U8 [2, 3]"});
  refused({{"input_ids", ids}, {"document", ids.to(at::kShort)}}, {"document", "I16"});
}

}  // namespace
}  // namespace strait::data
