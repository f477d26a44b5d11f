#include "launcher/hosts/content_store.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include "framework/store/file_lock.h"
#include "launcher/hosts/destination_file.h"
#include "tests/framework/store/expect_store_error.h"
#include "tests/launcher/hosts/transfer_rig.h"

namespace strait::transfer {
namespace {

class ContentStoreTest : public testing::Test {
 protected:
  // A content of one mebibyte, last used at this time.
  ChunkTable add(ContentStore& store, std::uint64_t seed, std::int64_t used) {
    const std::string bytes = random_bytes(ChunkTable::kChunkBytes, seed);
    ScratchDirectory::write(directory_ / "source", bytes);
    const ChunkTable table = read_chunk_table(directory_ / "source");
    PinnedContent pinned = store.pin(table.id());
    PartialFile file(pinned.data(), table);
    file.write(0, std::as_bytes(std::span(bytes)));
    file.save();
    const timespec times[2] = {{used, 0}, {used, 0}};
    const auto mark = pinned.data().parent_path() / "in-use";
    EXPECT_EQ(::utimensat(AT_FDCWD, mark.c_str(), times, 0), 0);
    return table;
  }

  std::filesystem::path place(const ChunkTable& table) const {
    return directory_ / "content" / table.id();
  }

  ScratchDirectory directory_;
};

TEST_F(ContentStoreTest, EvictsLeastRecentlyUsedAndKeepsPinned) {
  ContentStore store(directory_ / "content", 2 * ChunkTable::kChunkBytes + 100'000);
  const ChunkTable oldest = add(store, 1, 1000);
  const ChunkTable older = add(store, 2, 2000);
  const ChunkTable newest = add(store, 3, 3000);
  {
    const PinnedContent held = store.pin(oldest.id());
    ContentStore another_process(directory_ / "content", 100'000);
    another_process.evict();
    EXPECT_TRUE(std::filesystem::exists(held.data()));
  }
  EXPECT_FALSE(std::filesystem::exists(place(older)));
  EXPECT_FALSE(std::filesystem::exists(place(newest)));
  EXPECT_TRUE(std::filesystem::exists(place(oldest)));
}

TEST_F(ContentStoreTest, NothingGoesBelowTheLimit) {
  ContentStore store(directory_ / "content", 2 * ChunkTable::kChunkBytes + 100'000);
  const ChunkTable first = add(store, 1, 1000);
  const ChunkTable second = add(store, 2, 2000);
  store.evict();
  EXPECT_TRUE(std::filesystem::exists(place(first)));
  store.evict(ChunkTable::kChunkBytes);
  EXPECT_FALSE(std::filesystem::exists(place(first)));
  EXPECT_TRUE(std::filesystem::exists(place(second)));
}

TEST_F(ContentStoreTest, KeepsInstalledFilesThatBuildsLink) {
  ContentStore store(directory_ / "content", 100'000);
  const auto linked = directory_ / "content" / std::string(64, 'a') / "data";
  const auto unlinked = directory_ / "content" / std::string(64, 'b') / "data";
  const std::string bytes = random_bytes(ChunkTable::kChunkBytes, 1);
  for (const auto& file : {linked, unlinked}) {
    std::filesystem::create_directories(file.parent_path());
    ScratchDirectory::write(file, bytes);
  }
  std::filesystem::create_hard_link(linked, directory_ / "build");
  store.evict();
  EXPECT_TRUE(std::filesystem::exists(linked));
  EXPECT_FALSE(std::filesystem::exists(unlinked));
}

TEST_F(ContentStoreTest, RemovesWhatAKilledEvictionLeft) {
  ContentStore store(directory_ / "content");
  const ChunkTable table = add(store, 1, 1000);
  const auto left = directory_ / "content" / (table.id() + ".gone");
  std::filesystem::rename(place(table), left);
  store.evict();
  EXPECT_FALSE(std::filesystem::exists(left));
}

TEST_F(ContentStoreTest, OneWriterAtATime) {
  ContentStore store(directory_ / "content");
  const ChunkTable table = add(store, 1, 1000);
  PinnedContent one = store.pin(table.id());
  PinnedContent other = store.pin(table.id());
  EXPECT_TRUE(one.try_lock_for_writing());
  EXPECT_FALSE(other.try_lock_for_writing());
  one.unlock_writing();
  EXPECT_TRUE(other.try_lock_for_writing());
}

TEST(ContentStoreTables, DoesNotReadUnchangedFileAgain) {
  const ScratchDirectory directory;
  const ContentStore cache(directory.path());
  ScratchDirectory::write(directory / "file", random_bytes(1000, 3));
  const ChunkTable first = cache.table_of(directory / "file");
  ASSERT_EQ(std::filesystem::file_size(directory / "file"), 1000U);
  const FileStamp stamp = FileStamp::of(directory / "file");
  EXPECT_EQ(cache.table_of(directory / "file"), first);
  // The entry is used while the stamp is the same: a planted hash is returned.
  for (const auto& entry : std::filesystem::directory_iterator(directory / "tables")) {
    std::string text = ScratchDirectory::read(entry.path());
    const std::size_t at = text.rfind(first.whole);
    ASSERT_NE(at, std::string::npos);
    text.replace(at, 4, "0000");
    ScratchDirectory::write(entry.path(), text);
  }
  ASSERT_EQ(FileStamp::of(directory / "file"), stamp);
  EXPECT_EQ(cache.table_of(directory / "file").whole.substr(0, 4), "0000");
  ScratchDirectory::write(directory / "file", random_bytes(1001, 4));
  EXPECT_EQ(cache.table_of(directory / "file"), read_chunk_table(directory / "file"));
}

TEST(ContentStoreTables, ReplacesIncompleteEntry) {
  const ScratchDirectory directory;
  const ContentStore cache(directory.path());
  ScratchDirectory::write(directory / "file", random_bytes(1000, 5));
  const ChunkTable first = cache.table_of(directory / "file");
  for (const auto& entry : std::filesystem::directory_iterator(directory / "tables")) {
    ScratchDirectory::write(entry.path(), "{\"path\": ");
  }
  EXPECT_EQ(cache.table_of(directory / "file"), first);
  // Neither a file that does not exist, nor one below a file.
  for (const char* name : {"nothing-here", "file/nothing-here"}) {
    store::expect_store_error(store::StoreError::Kind::bad_input, {name},
                              [&] { cache.table_of(directory / name); });
  }
}

TEST(ContentStoreTables, ReturnsTableThatCannotBeKept) {
  const ScratchDirectory directory;
  ScratchDirectory::write(directory / "file", random_bytes(1000, 5));
  // A file stands where the folder of entries would be made.
  const ContentStore cache(directory.path());
  ScratchDirectory::write(directory / "tables", "");
  EXPECT_EQ(cache.table_of(directory / "file"), read_chunk_table(directory / "file"));
}

TEST(ContentStoreTables, RemovesIncompleteFilesOfKilledWriters) {
  const ScratchDirectory directory;
  const ContentStore cache(directory.path());
  ScratchDirectory::write(directory / "a", random_bytes(1000, 6));
  ScratchDirectory::write(directory / "b", random_bytes(1000, 7));
  cache.table_of(directory / "a");
  ScratchDirectory::write(directory / "tables" / "0123.json.tmp-19", "{\"path\": ");
  cache.table_of(directory / "b");
  int entries = 0;
  for (const auto& entry : std::filesystem::directory_iterator(directory / "tables")) {
    EXPECT_EQ(entry.path().extension(), ".json") << entry.path();
    ++entries;
  }
  EXPECT_EQ(entries, 2);
}

TEST(ContentStoreTables, RemovesOldEntries) {
  const ScratchDirectory directory;
  const ContentStore cache(directory.path());
  ScratchDirectory::write(directory / "a", random_bytes(1000, 6));
  ScratchDirectory::write(directory / "b", random_bytes(1000, 7));
  ScratchDirectory::write(directory / "c", random_bytes(1000, 8));
  const ChunkTable table = cache.table_of(directory / "a");
  const auto of_a = *std::filesystem::directory_iterator(directory / "tables");
  cache.table_of(directory / "b");
  std::filesystem::last_write_time(of_a, std::filesystem::file_time_type::clock::now() -
                                             ContentStore::kMaxTableAge - std::chrono::hours(1));
  cache.table_of(directory / "c");
  EXPECT_FALSE(std::filesystem::exists(of_a));
  using Entries = std::filesystem::directory_iterator;
  EXPECT_EQ(std::distance(Entries(directory / "tables"), Entries()), 2);
  EXPECT_EQ(cache.table_of(directory / "a"), table);
}

TEST(ContentStoreTables, ReadsTableWithoutCachingWhileLocked) {
  const ScratchDirectory directory;
  const ContentStore cache(directory.path());
  ScratchDirectory::write(directory / "file", random_bytes(1000, 8));
  const FileDescriptor lock = store::try_lock(directory / "tables.lock");
  ASSERT_TRUE(lock.open());
  EXPECT_EQ(cache.table_of(directory / "file"), read_chunk_table(directory / "file"));
  EXPECT_TRUE(std::filesystem::is_empty(directory / "tables"));
}

}  // namespace
}  // namespace strait::transfer
