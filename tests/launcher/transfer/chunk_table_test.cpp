#include "launcher/transfer/chunk_table.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/file.h>

#include "framework/store/file_descriptor.h"
#include "framework/store/file_hash.h"
#include "launcher/transfer/content_store.h"
#include "tests/framework/store/expect_store_error.h"
#include "tests/launcher/transfer/transfer_rig.h"

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

TEST(TableCache, DoesNotReadUnchangedFileAgain) {
  const ScratchDirectory directory;
  const TableCache cache(directory / "tables");
  ScratchDirectory::write(directory / "file", random_bytes(1000, 3));
  const ChunkTable first = cache.table(directory / "file");
  ASSERT_EQ(std::filesystem::file_size(directory / "file"), 1000U);
  const FileStamp stamp = FileStamp::of(directory / "file");
  EXPECT_EQ(cache.table(directory / "file"), first);
  // The entry is used while the stamp is the same: a planted hash is relocked.
  for (const auto& entry : std::filesystem::directory_iterator(directory / "tables")) {
    std::string text = ScratchDirectory::read(entry.path());
    const std::size_t at = text.rfind(first.whole);
    ASSERT_NE(at, std::string::npos);
    text.replace(at, 4, "0000");
    ScratchDirectory::write(entry.path(), text);
  }
  ASSERT_EQ(FileStamp::of(directory / "file"), stamp);
  EXPECT_EQ(cache.table(directory / "file").whole.substr(0, 4), "0000");
  ScratchDirectory::write(directory / "file", random_bytes(1001, 4));
  EXPECT_EQ(cache.table(directory / "file"), read_chunk_table(directory / "file"));
}

TEST(TableCache, ReplacesIncompleteEntry) {
  const ScratchDirectory directory;
  const TableCache cache(directory / "tables");
  ScratchDirectory::write(directory / "file", random_bytes(1000, 5));
  const ChunkTable first = cache.table(directory / "file");
  for (const auto& entry : std::filesystem::directory_iterator(directory / "tables")) {
    ScratchDirectory::write(entry.path(), "{\"path\": ");
  }
  EXPECT_EQ(cache.table(directory / "file"), first);
  store::expect_store_error(store::StoreError::Kind::bad_input, {"nothing-here"},
                            [&] { cache.table(directory / "nothing-here"); });
}

TEST(TableCache, RemovesIncompleteFilesOfKilledWriters) {
  const ScratchDirectory directory;
  const TableCache cache(directory / "tables");
  ScratchDirectory::write(directory / "a", random_bytes(1000, 6));
  ScratchDirectory::write(directory / "b", random_bytes(1000, 7));
  cache.table(directory / "a");
  ScratchDirectory::write(directory / "tables" / "0123.json.tmp-19", "{\"path\": ");
  cache.table(directory / "b");
  int entries = 0;
  for (const auto& entry : std::filesystem::directory_iterator(directory / "tables")) {
    EXPECT_EQ(entry.path().extension(), ".json") << entry.path();
    ++entries;
  }
  EXPECT_EQ(entries, 2);
}

TEST(TableCache, RemovesOldEntries) {
  const ScratchDirectory directory;
  const TableCache cache(directory / "tables");
  ScratchDirectory::write(directory / "a", random_bytes(1000, 6));
  ScratchDirectory::write(directory / "b", random_bytes(1000, 7));
  ScratchDirectory::write(directory / "c", random_bytes(1000, 8));
  const ChunkTable table = cache.table(directory / "a");
  const auto of_a = *std::filesystem::directory_iterator(directory / "tables");
  cache.table(directory / "b");
  std::filesystem::last_write_time(of_a, std::filesystem::file_time_type::clock::now() -
                                             TableCache::kMaxAge - std::chrono::hours(1));
  cache.table(directory / "c");
  EXPECT_FALSE(std::filesystem::exists(of_a));
  using Entries = std::filesystem::directory_iterator;
  EXPECT_EQ(std::distance(Entries(directory / "tables"), Entries()), 2);
  EXPECT_EQ(cache.table(directory / "a"), table);
}

TEST(TableCache, RelocksTableWithoutCachingWhileLocked) {
  const ScratchDirectory directory;
  const TableCache cache(directory / "tables");
  ScratchDirectory::write(directory / "file", random_bytes(1000, 8));
  const store::FileDescriptor lock(
      ::open((directory / "tables.lock").c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644));
  ASSERT_TRUE(lock.open());
  ASSERT_EQ(::flock(lock.number(), LOCK_EX), 0);
  EXPECT_EQ(cache.table(directory / "file"), read_chunk_table(directory / "file"));
  EXPECT_TRUE(std::filesystem::is_empty(directory / "tables"));
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
