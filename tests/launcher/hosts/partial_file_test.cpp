#include <gtest/gtest.h>

#include "launcher/hosts/destination_file.h"
#include "tests/framework/store/expect_store_error.h"
#include "tests/launcher/hosts/transfer_rig.h"

namespace strait::transfer {
namespace {

class PartialFileTest : public testing::Test {
 protected:
  PartialFileTest() : bytes_(random_bytes(4 * ChunkTable::kChunkBytes + 100, 1)) {
    ScratchDirectory::write(directory_ / "source", bytes_);
    table_ = read_chunk_table(directory_ / "source");
  }

  std::span<const std::byte> chunk(std::uint32_t number) const {
    return std::as_bytes(std::span(bytes_)).subspan(table_.begin(number), table_.bytes(number));
  }
  PartialFile open() const { return {directory_ / "data", table_}; }

  ScratchDirectory directory_;
  std::string bytes_;
  ChunkTable table_;
};

TEST_F(PartialFileTest, HasFullSizeAndHolesFromStart) {
  PartialFile file = open();
  EXPECT_TRUE(file.write(3, chunk(3)));
  EXPECT_EQ(std::filesystem::file_size(file.path()), bytes_.size());
  const std::string there = ScratchDirectory::read(file.path());
  EXPECT_EQ(there.substr(table_.begin(3), table_.bytes(3)),
            bytes_.substr(table_.begin(3), table_.bytes(3)));
  EXPECT_EQ(there.substr(0, 100), std::string(100, '\0'));
}

TEST_F(PartialFileTest, RefusesChunkWithWrongHash) {
  PartialFile file = open();
  EXPECT_FALSE(file.write(1, chunk(2)));
  EXPECT_FALSE(file.write(4, chunk(3)));
  EXPECT_TRUE(file.chunks().empty());
}

TEST_F(PartialFileTest, FindsItsChunksWithAndWithoutNote) {
  {
    PartialFile file = open();
    file.write(0, chunk(0));
    file.save();
    file.write(4, chunk(4));  // newer than the note, as after a crash
  }
  PartialFile crashed = open();
  EXPECT_EQ(crashed.chunks().runs(), (std::vector<ChunkRun>{{0, 1}, {4, 1}}));
  crashed.save();
  EXPECT_EQ(open().chunks().runs(), (std::vector<ChunkRun>{{0, 1}, {4, 1}}));
  ScratchDirectory::write(directory_ / "data.have", "{\"table\": 3");
  EXPECT_EQ(open().chunks().runs(), (std::vector<ChunkRun>{{0, 1}, {4, 1}}));
}

TEST_F(PartialFileTest, FindsDamageDespiteNote) {
  {
    PartialFile file = open();
    for (std::uint32_t number = 0; number < table_.count(); ++number) {
      file.write(number, chunk(number));
    }
    file.save();
  }
  std::string damaged = bytes_;
  damaged[ChunkTable::kChunkBytes + 7] ^= 1;
  ScratchDirectory::write(directory_ / "data", damaged);
  EXPECT_EQ(open().chunks().runs(), (std::vector<ChunkRun>{{0, 1}, {2, 3}}));
}

TEST_F(PartialFileTest, FinishRenamesAndRemovesNote) {
  PartialFile file = open();
  for (std::uint32_t number = 0; number < table_.count(); ++number) {
    file.write(number, chunk(number));
  }
  file.save();
  file.finish(directory_ / "whole");
  EXPECT_EQ(ScratchDirectory::read(directory_ / "whole"), bytes_);
  EXPECT_FALSE(std::filesystem::exists(directory_ / "data"));
  EXPECT_FALSE(std::filesystem::exists(directory_ / "data.have"));
}

TEST_F(PartialFileTest, ReportsMissingRoom) {
  store::expect_store_error(
      store::StoreError::Kind::storage_full,
      {"no room for the model", "1152921504606846976 bytes are needed", "are free in", "make room"},
      [this] { require_room(directory_.path(), std::uint64_t{1} << 60, "the model"); });
}

}  // namespace
}  // namespace strait::transfer
