#include "launcher/transfer/piece_file.h"

#include <gtest/gtest.h>

#include "tests/framework/store/expect_store_error.h"
#include "tests/launcher/transfer/ship_rig.h"

namespace strait::transfer {
namespace {

class PieceFileTest : public testing::Test {
 protected:
  PieceFileTest() : bytes_(random_bytes(4 * FileTable::kPieceBytes + 100, 1)) {
    store::write_bytes(directory_ / "source", bytes_);
    table_ = table_of_file(directory_ / "source");
  }

  std::span<const std::byte> piece(std::uint32_t number) const {
    return std::as_bytes(std::span(bytes_)).subspan(table_.begin(number), table_.bytes(number));
  }
  PieceFile open() const { return {directory_ / "data", table_}; }

  store::TemporaryDirectory directory_;
  std::string bytes_;
  FileTable table_;
};

TEST_F(PieceFileTest, HasItsSizeFromTheStartAndHolesWhereNothingCame) {
  PieceFile file = open();
  EXPECT_TRUE(file.write(3, piece(3)));
  EXPECT_EQ(std::filesystem::file_size(file.path()), bytes_.size());
  const std::string there = store::read_bytes(file.path());
  EXPECT_EQ(there.substr(table_.begin(3), table_.bytes(3)),
            bytes_.substr(table_.begin(3), table_.bytes(3)));
  EXPECT_EQ(there.substr(0, 100), std::string(100, '\0'));
}

TEST_F(PieceFileTest, TakesNoPieceThatIsAnother) {
  PieceFile file = open();
  EXPECT_FALSE(file.write(1, piece(2)));
  EXPECT_FALSE(file.write(4, piece(3)));
  EXPECT_TRUE(file.pieces().empty());
}

TEST_F(PieceFileTest, KnowsItsPiecesAgainWithAndWithoutItsNote) {
  {
    PieceFile file = open();
    file.write(0, piece(0));
    file.settle();
    file.write(4, piece(4));  // behind the note, as before a crash
  }
  PieceFile crashed = open();
  EXPECT_EQ(crashed.pieces().runs(), (std::vector<PieceRun>{{0, 1}, {4, 1}}));
  crashed.settle();
  EXPECT_EQ(open().pieces().runs(), (std::vector<PieceRun>{{0, 1}, {4, 1}}));
  store::write_bytes(directory_ / "data.have", "{\"table\": 3");
  EXPECT_EQ(open().pieces().runs(), (std::vector<PieceRun>{{0, 1}, {4, 1}}));
}

TEST_F(PieceFileTest, DamageIsFoundEvenWhereTheNoteSaysAllIsThere) {
  {
    PieceFile file = open();
    for (std::uint32_t number = 0; number < table_.count(); ++number) {
      file.write(number, piece(number));
    }
    file.settle();
  }
  std::string damaged = bytes_;
  damaged[FileTable::kPieceBytes + 7] ^= 1;
  store::write_bytes(directory_ / "data", damaged);
  EXPECT_EQ(open().pieces().runs(), (std::vector<PieceRun>{{0, 1}, {2, 3}}));
}

TEST_F(PieceFileTest, AFinishedFileStandsAloneUnderItsName) {
  PieceFile file = open();
  for (std::uint32_t number = 0; number < table_.count(); ++number) {
    file.write(number, piece(number));
  }
  file.settle();
  file.finish(directory_ / "whole");
  EXPECT_EQ(store::read_bytes(directory_ / "whole"), bytes_);
  EXPECT_FALSE(std::filesystem::exists(directory_ / "data"));
  EXPECT_FALSE(std::filesystem::exists(directory_ / "data.have"));
}

TEST_F(PieceFileTest, NoRoomIsOneSentence) {
  store::expect_store_error(
      store::StoreError::Kind::storage_full,
      {"no room for the model", "1152921504606846976 bytes are needed", "are free in", "make room"},
      [this] { require_room(directory_.path(), std::uint64_t{1} << 60, "the model"); });
}

}  // namespace
}  // namespace strait::transfer
