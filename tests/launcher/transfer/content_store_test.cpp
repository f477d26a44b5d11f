#include "launcher/transfer/content_store.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include "launcher/transfer/partial_file.h"
#include "tests/launcher/transfer/transfer_rig.h"

namespace strait::transfer {
namespace {

class ContentStoreTest : public testing::Test {
 protected:
  // A content of one mebibyte, last used at this time.
  ChunkTable add(ContentStore& store, std::uint64_t seed, std::int64_t used) {
    const std::string bytes = random_bytes(ChunkTable::kChunkBytes, seed);
    ScratchDirectory::write(directory_ / "source", bytes);
    const ChunkTable table = read_chunk_table(directory_ / "source");
    PinnedContent pinned = store.pin(table);
    PartialFile file(pinned.data(), table);
    file.write(0, std::as_bytes(std::span(bytes)));
    file.save();
    const timespec times[2] = {{used, 0}, {used, 0}};
    const auto mark = pinned.data().parent_path() / "in-use";
    EXPECT_EQ(::utimensat(AT_FDCWD, mark.c_str(), times, 0), 0);
    return table;
  }

  ScratchDirectory directory_;
};

TEST_F(ContentStoreTest, EvictsLeastRecentlyUsedAndKeepsPinned) {
  ContentStore store(directory_ / "content", 2 * ChunkTable::kChunkBytes + 100'000);
  const ChunkTable oldest = add(store, 1, 1000);
  const ChunkTable older = add(store, 2, 2000);
  const ChunkTable newest = add(store, 3, 3000);
  {
    const auto held = store.find(oldest.id());
    ASSERT_TRUE(held.has_value());
    ContentStore another_process(directory_ / "content", 100'000);
    another_process.evict();
    EXPECT_TRUE(std::filesystem::exists(held->data()));
  }
  EXPECT_FALSE(store.find(older.id()).has_value());
  EXPECT_FALSE(store.find(newest.id()).has_value());
  EXPECT_TRUE(store.find(oldest.id()).has_value());
}

TEST_F(ContentStoreTest, NothingGoesBelowTheLimit) {
  ContentStore store(directory_ / "content", 2 * ChunkTable::kChunkBytes + 100'000);
  const ChunkTable first = add(store, 1, 1000);
  const ChunkTable second = add(store, 2, 2000);
  store.evict();
  EXPECT_TRUE(std::filesystem::exists(store.directory() / first.id()));
  store.evict(ChunkTable::kChunkBytes);
  EXPECT_FALSE(std::filesystem::exists(store.directory() / first.id()));
  EXPECT_TRUE(std::filesystem::exists(store.directory() / second.id()));
}

TEST_F(ContentStoreTest, KeepsInstalledFilesThatBuildsLink) {
  ContentStore store(directory_ / "content", 100'000);
  const auto linked = store.directory() / std::string(64, 'a') / "data";
  const auto unlinked = store.directory() / std::string(64, 'b') / "data";
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
  const auto left = store.directory() / (table.id() + ".gone");
  std::filesystem::rename(store.directory() / table.id(), left);
  store.evict();
  EXPECT_FALSE(std::filesystem::exists(left));
}

TEST_F(ContentStoreTest, OneWriterAtATime) {
  ContentStore store(directory_ / "content");
  const ChunkTable table = add(store, 1, 1000);
  PinnedContent one = store.pin(table);
  PinnedContent other = store.pin(table);
  EXPECT_TRUE(one.try_lock_for_writing());
  EXPECT_FALSE(other.try_lock_for_writing());
  one.unlock_writing();
  EXPECT_TRUE(other.try_lock_for_writing());
}

TEST_F(ContentStoreTest, FindRefusesDamagedContent) {
  ContentStore store(directory_ / "content");
  const ChunkTable table = add(store, 1, 1000);
  EXPECT_FALSE(store.find("../content").has_value());
  ScratchDirectory::write(store.directory() / table.id() / "table.json", "{");
  EXPECT_FALSE(store.find(table.id()).has_value());
}

}  // namespace
}  // namespace strait::transfer
