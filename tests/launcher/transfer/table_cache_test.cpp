#include "launcher/transfer/table_cache.h"

#include <gtest/gtest.h>

#include "framework/store/file_lock.h"
#include "tests/framework/store/expect_store_error.h"
#include "tests/launcher/transfer/transfer_rig.h"

namespace strait::transfer {
namespace {

TEST(TableCache, DoesNotReadUnchangedFileAgain) {
  const ScratchDirectory directory;
  const TableCache cache(directory / "tables");
  ScratchDirectory::write(directory / "file", random_bytes(1000, 3));
  const ChunkTable first = cache.table(directory / "file");
  ASSERT_EQ(std::filesystem::file_size(directory / "file"), 1000U);
  const FileStamp stamp = FileStamp::of(directory / "file");
  EXPECT_EQ(cache.table(directory / "file"), first);
  // The entry is used while the stamp is the same: a planted hash is returned.
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
  // Neither a file that does not exist, nor one below a file.
  for (const char* name : {"nothing-here", "file/nothing-here"}) {
    store::expect_store_error(store::StoreError::Kind::bad_input, {name},
                              [&] { cache.table(directory / name); });
  }
}

TEST(TableCache, ReturnsTableThatCannotBeKept) {
  const ScratchDirectory directory;
  ScratchDirectory::write(directory / "file", random_bytes(1000, 5));
  // A file stands where the folder of entries would be made.
  const TableCache cache(directory / "file" / "tables");
  EXPECT_EQ(cache.table(directory / "file"), read_chunk_table(directory / "file"));
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

TEST(TableCache, ReadsTableWithoutCachingWhileLocked) {
  const ScratchDirectory directory;
  const TableCache cache(directory / "tables");
  ScratchDirectory::write(directory / "file", random_bytes(1000, 8));
  const FileDescriptor lock = store::try_lock(directory / "tables.lock");
  ASSERT_TRUE(lock.open());
  EXPECT_EQ(cache.table(directory / "file"), read_chunk_table(directory / "file"));
  EXPECT_TRUE(std::filesystem::is_empty(directory / "tables"));
}

}  // namespace
}  // namespace strait::transfer
