#include "launcher/hosts/destination_file.h"

#include <gtest/gtest.h>

#include <cerrno>

#include "tests/framework/store/expect_store_error.h"
#include "tests/framework/store/system_faults.h"
#include "tests/launcher/hosts/transfer_rig.h"

namespace strait::transfer {
namespace {

// The agent pins the content until it ends, and fetches it again later.
TEST(DestinationFile, FullDiskAtItsEndLeavesNoWriteLock) {
  const ScratchDirectory directory;
  const std::string bytes = random_bytes(kMebibyte, 1);
  ScratchDirectory::write(directory / "source", bytes);
  const FetchRequest request =
      all_of(read_chunk_table(directory / "source"), directory / "in/file");
  ContentStore store(directory / "content");
  const auto destination = DestinationFile::open(store, request, {});
  ASSERT_NE(destination, nullptr);
  const auto pinned = destination->content();
  ASSERT_TRUE(destination->file().write(0, std::as_bytes(std::span(bytes))));
  store::expect_store_error(store::StoreError::Kind::storage_full, {}, [&] {
    store::with_fault({.call = store::SystemCall::write, .error = ENOSPC},
                      [&] { destination->finish(); });
  });
  const auto again = DestinationFile::open(store, request, {});
  ASSERT_NE(again, nullptr) << "the content is locked";
  again->finish();
  EXPECT_EQ(ScratchDirectory::read(request.path), bytes);
}

}  // namespace
}  // namespace strait::transfer
