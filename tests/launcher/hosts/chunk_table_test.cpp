#include "launcher/hosts/chunk_table.h"

#include <gtest/gtest.h>

#include "framework/store/file_hash.h"
#include "tests/launcher/hosts/transfer_rig.h"

namespace strait::transfer {
namespace {

TEST(ChunkTable, HashesEachChunkAndWhole) {
  const ScratchDirectory directory;
  const std::string bytes = random_bytes(2 * ChunkTable::kChunkBytes + 5, 1);
  ScratchDirectory::write(directory / "file", bytes);
  const ChunkTable table = read_chunk_table(directory / "file");
  EXPECT_TRUE(table.well_formed());
  ASSERT_EQ(table.count(), 3U);
  EXPECT_EQ(table.bytes(2), 5U);
  EXPECT_EQ(table.whole, store::hash_text(bytes));
  const auto last = std::as_bytes(std::span(bytes)).last(5);
  EXPECT_TRUE(table.matches(2, last));
  EXPECT_FALSE(table.matches(1, last));
  EXPECT_FALSE(table.matches(3, last));
}

TEST(ChunkTable, IdDependsOnContentOnly) {
  const ScratchDirectory directory;
  const std::string bytes = random_bytes(1000, 2);
  ScratchDirectory::write(directory / "a", bytes);
  ScratchDirectory::write(directory / "b", bytes);
  ScratchDirectory::write(directory / "c", bytes + "x");
  const std::string id = read_chunk_table(directory / "a").id();
  EXPECT_TRUE(is_content_id(id));
  EXPECT_EQ(read_chunk_table(directory / "b").id(), id);
  EXPECT_NE(read_chunk_table(directory / "c").id(), id);
}

TEST(ChunkTable, EmptyFileHasNoChunks) {
  const ScratchDirectory directory;
  ScratchDirectory::write(directory / "empty", "");
  const ChunkTable table = read_chunk_table(directory / "empty");
  EXPECT_TRUE(table.well_formed());
  EXPECT_EQ(table.count(), 0U);
}

TEST(ChunkTable, RefusesTablesThatAreNotWellFormed) {
  ChunkTable table{5, std::string(32, 'a'), std::string(32, 'b')};
  EXPECT_TRUE(table.well_formed());
  table.size = ChunkTable::kChunkBytes + 1;
  EXPECT_FALSE(table.well_formed());
  table.size = 5;
  table.chunks[3] = 'g';
  EXPECT_FALSE(table.well_formed());
}

TEST(ChunkSet, HoldingFindsChunksOfByteRanges) {
  const ChunkTable table{
      3 * ChunkTable::kChunkBytes + 1, {}, std::string(4 * ChunkTable::kDigits, 'a')};
  const std::vector<ByteRange> ranges = {{0, 1}, {ChunkTable::kChunkBytes * 3, 1ULL << 60}, {9, 9}};
  const ChunkSet set = ChunkSet::holding(table, ranges);
  EXPECT_EQ(set.runs(), (std::vector<ChunkRun>{{0, 1}, {3, 1}}));
  EXPECT_EQ(set.bytes(table), ChunkTable::kChunkBytes + 1);
  EXPECT_TRUE(ChunkSet::all(4).contains(set));
  EXPECT_FALSE(set.contains(ChunkSet::all(4)));
}

TEST(ChunkSet, InsertRefusesRunsOutOfRange) {
  ChunkSet set(4);
  const std::vector<ChunkRun> outside = {{0, 2}, {3, 0xffffffff}};
  EXPECT_FALSE(set.insert(outside));
  EXPECT_TRUE(set.empty());
  const std::vector<ChunkRun> inside = {{0, 2}, {3, 1}};
  EXPECT_TRUE(set.insert(inside));
  EXPECT_EQ(set.runs(), inside);
  ChunkSet rest = ChunkSet::all(4);
  rest.erase(set);
  EXPECT_EQ(rest.runs(), (std::vector<ChunkRun>{{2, 1}}));
}

}  // namespace
}  // namespace strait::transfer
