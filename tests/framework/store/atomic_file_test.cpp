#include "framework/store/atomic_file.h"

#include <sched.h>
#include <sys/mount.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "framework/store/file_progress.h"
#include "framework/store/input_file.h"
#include "tests/child_process.h"
#include "tests/framework/store/expect_store_error.h"
#include "tests/framework/store/system_faults.h"
#include "tests/scratch_directory.h"

namespace strait::store {
namespace {

std::vector<std::string> names_in(const std::filesystem::path& path) {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(path)) {
    names.push_back(entry.path().filename().string());
  }
  std::sort(names.begin(), names.end());
  return names;
}

TEST(AtomicFile, ReplacesAFileWholeAndReportsSizeAndHash) {
  const ScratchDirectory folder;
  ScratchDirectory::write(folder / "state", "old");
  const FileSummary summary = replace_file(folder / "state", "the new content");
  EXPECT_EQ(ScratchDirectory::read(folder / "state"), "the new content");
  EXPECT_EQ(summary, hash_file(folder / "state"));
  EXPECT_EQ(names_in(folder.path()), std::vector<std::string>{"state"});
}

TEST(AtomicFile, LeavesNothingWithoutCommit) {
  const ScratchDirectory folder;
  ScratchDirectory::write(folder / "state", "old");
  {
    AtomicFile file(folder / "state");
    file.write(std::as_bytes(std::span("half")));
  }
  EXPECT_EQ(ScratchDirectory::read(folder / "state"), "old");
  EXPECT_EQ(names_in(folder.path()), std::vector<std::string>{"state"});
}

TEST(AtomicFile, IsNotPutInPlaceWhenTheLastQuestionForbidsIt) {
  const ScratchDirectory folder;
  AtomicFile file(folder / "state");
  EXPECT_THROW(file.commit([] { throw std::runtime_error("a newer generation runs"); }),
               std::runtime_error);
  EXPECT_TRUE(names_in(folder.path()).empty());
  EXPECT_THROW(file.commit(), std::logic_error);
}

TEST(AtomicFile, OfAKilledWriterIsRemovedAndOfALivingOneStays) {
  const ScratchDirectory folder;
  const auto write_until_killed = [&](int ready) {
    AtomicFile file(folder / "state");
    file.write(std::as_bytes(std::span("half")));
    ChildProcess::report_ready(ready);
    ::pause();
  };
  ChildProcess killed(write_until_killed);
  AtomicFile own(folder / "state");
  const AtomicFile of_another_name(folder / "state-2");
  remove_abandoned(folder / "state");
  EXPECT_EQ(names_in(folder.path()).size(), 3U);
  killed.kill();
  remove_abandoned(folder / "state");
  EXPECT_EQ(names_in(folder.path()).size(), 2U);
  own.commit();
  remove_abandoned(folder / "state");
  EXPECT_TRUE(std::filesystem::exists(folder / "state"));
}

TEST(AtomicFile, WritesOnAfterShortWrites) {
  const ScratchDirectory folder;
  with_short_writes(7, [&] { replace_file(folder / "state", std::string(1000, 'x')); });
  EXPECT_EQ(ScratchDirectory::read(folder / "state"), std::string(1000, 'x'));
}

TEST(AtomicFile, KeepsTheOldFileWhicheverCallFails) {
  const ScratchDirectory folder;
  for (const int error : {ENOSPC, EIO}) {
    for (const SystemCall call :
         {SystemCall::fallocate, SystemCall::write, SystemCall::fsync, SystemCall::rename}) {
      ScratchDirectory::write(folder / "state", "old");
      const auto kind =
          error == ENOSPC ? StoreError::Kind::storage_full : StoreError::Kind::storage_io;
      expect_store_error(kind, {"state"}, [&] {
        with_fault({.call = call, .after = 0, .error = error, .once = true},
                   [&] { replace_file(folder / "state", "new"); });
      });
      EXPECT_EQ(ScratchDirectory::read(folder / "state"), "old");
      EXPECT_EQ(names_in(folder.path()), std::vector<std::string>{"state"});
    }
  }
}

TEST(AtomicFile, NeverTriesAFailedFsyncAgain) {
  const ScratchDirectory folder;
  int calls = 0;
  calls = with_fault({.call = SystemCall::fsync, .after = 0, .error = EIO, .once = true}, [&] {
    expect_store_error(StoreError::Kind::storage_io, {"make durable"},
                       [&] { replace_file(folder / "state", "new"); });
  });
  EXPECT_EQ(calls, 1);
}

TEST(AtomicFile, TakesAwayANewFileWhoseDirectoryCannotBeMadeDurable) {
  const ScratchDirectory folder;
  expect_store_error(StoreError::Kind::storage_io, {folder.path().string()}, [&] {
    with_fault({.call = SystemCall::fsync, .after = 1, .error = EIO, .once = true},
               [&] { replace_file(folder / "state", "new"); });
  });
  EXPECT_TRUE(names_in(folder.path()).empty());
}

// Returns 0 when the promise holds, 77 when this machine does not let us mount.
int fill_small_disk(const std::filesystem::path& folder) {
  if (::unshare(CLONE_NEWNS) != 0) return 77;
  if (::mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0) return 77;
  if (::mount("none", folder.c_str(), "tmpfs", 0, "size=1m") != 0) return 77;
  for (const std::uint64_t expected : {std::uint64_t{0}, std::uint64_t{4} << 20}) {
    replace_file(folder / "old", "old");
    try {
      AtomicFile file(folder / "large", expected);
      for (int i = 0; i < 64; ++i) file.write(std::vector<std::byte>(1 << 16));
      return 1;
    } catch (const StoreError& error) {
      const std::string words = error.what();
      if (error.kind() != StoreError::Kind::storage_full) return 2;
      if (words.find("bytes are needed") == std::string::npos) return 3;
      if (expected > 0 && words.find("4194304") == std::string::npos) return 4;
    }
    if (names_in(folder) != std::vector<std::string>{"old"}) return 5;
    replace_file(folder / "small", "there is room again");
    std::filesystem::remove(folder / "small");
  }
  return 0;
}

TEST(AtomicFile, SaysWhatAFullDiskLacksAndLeavesRoomBehind) {
  const ScratchDirectory folder;
  const pid_t child = ::fork();
  ASSERT_GE(child, 0);
  if (child == 0) ::_exit(fill_small_disk(folder.path()));
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  ASSERT_TRUE(WIFEXITED(status));
  if (WEXITSTATUS(status) == 77) GTEST_SKIP() << "a tmpfs cannot be mounted here (not root)";
  EXPECT_EQ(WEXITSTATUS(status), 0);
}

TEST(AtomicFile, CountsBytesAsTheyAreWrittenAndRead) {
  const ScratchDirectory folder;
  const std::vector<std::byte> bytes(std::size_t{20} << 20U, std::byte{7});
  const std::uint64_t before = file_progress();
  AtomicFile file(folder / "large", bytes.size());
  file.write(bytes);
  // And one for each call that makes them durable.
  constexpr std::uint64_t kCalls = 16;
  EXPECT_GE(file_progress() - before, bytes.size());
  EXPECT_LT(file_progress() - before, bytes.size() + kCalls);
  const std::uint64_t written = file_progress();
  const FileSummary summary = file.commit();
  EXPECT_EQ(file_progress() - written, 3U);  // fsync, rename, fsync of the folder
  EXPECT_EQ(summary.size, bytes.size());
  std::vector<std::byte> read(bytes.size());
  InputFile(folder / "large").read(0, read);
  EXPECT_EQ(read, bytes);
  EXPECT_GE(file_progress() - before, 2 * bytes.size());
  EXPECT_LT(file_progress() - before, 2 * bytes.size() + kCalls);
}

TEST(MakeDirectory, MakesParentsAndAcceptsWhatIsThere) {
  const ScratchDirectory folder;
  make_directory(folder / "a/b/c");
  make_directory(folder / "a/b/c");
  EXPECT_TRUE(std::filesystem::is_directory(folder / "a/b/c"));
  ScratchDirectory::write(folder / "file", "");
  expect_store_error(StoreError::Kind::storage_io, {"file"},
                     [&] { make_directory(folder / "file"); });
  expect_store_error(StoreError::Kind::bad_input, {"file/sub"},
                     [&] { make_directory(folder / "file/sub"); });
  std::filesystem::create_symlink("/nowhere/at/all", folder / "link");
  for (const char* const path : {"link", "link/sub"}) {
    expect_store_error(StoreError::Kind::bad_input,
                       {"link: it is a symbolic link to /nowhere/at/all", "remove the link"},
                       [&] { make_directory(folder / path); });
  }
}

TEST(InputFile, RefusesWhatIsNoRegularFileAndWhatIsTooLarge) {
  const ScratchDirectory folder;
  expect_store_error(StoreError::Kind::bad_input, {"not a regular file"},
                     [&] { InputFile file(folder.path()); });
  expect_store_error(StoreError::Kind::bad_input, {"No such file", "absent"},
                     [&] { InputFile file(folder / "absent"); });
  ScratchDirectory::write(folder / "text", "12345");
  EXPECT_EQ(read_text_file(folder / "text", 5), "12345");
  expect_store_error(StoreError::Kind::bad_input, {"5 bytes", "at most 4"},
                     [&] { read_text_file(folder / "text", 4); });
}

TEST(InputFile, ReportsFileThatShrinksWhileItIsRead) {
  const ScratchDirectory folder;
  ScratchDirectory::write(folder / "text", "12345");
  const InputFile file(folder / "text");
  std::filesystem::resize_file(folder / "text", 3);
  std::vector<std::byte> bytes(5);
  expect_store_error(StoreError::Kind::corrupt, {"ends at byte 3"}, [&] { file.read(0, bytes); });
}

TEST(InputFile, HandsOutARangeInPieces) {
  const ScratchDirectory folder;
  ScratchDirectory::write(folder / "text", "0123456789");
  const InputFile file(folder / "text");
  std::vector<std::string> pieces;
  const auto take = [&](std::span<const std::byte> bytes) {
    pieces.emplace_back(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  };
  file.each_piece(2, 9, 3, take);
  EXPECT_EQ(pieces, (std::vector<std::string>{"234", "567", "8"}));
  file.each_piece(4, 4, 3, take);
  EXPECT_EQ(pieces.size(), 3U) << "there is nothing to hand out";
}

TEST(FileHash, IsTheSameInPiecesAndKnownFromOutside) {
  EXPECT_EQ(hash_text(""), "99aa06d3014798d86001c324468d497f");  // as published with xxHash
  const std::string text(5000, 'a');
  FileHash hash;
  hash.update(std::as_bytes(std::span(text)).subspan(0, 1234));
  hash.update(std::as_bytes(std::span(text)).subspan(1234));
  EXPECT_EQ(hash.hex(), hash_text(text));
  const ScratchDirectory folder;
  const std::string large(3'000'001, 'b');  // more than one piece of reading
  ScratchDirectory::write(folder / "large", large);
  EXPECT_EQ(hash_file(folder / "large"), (FileSummary{large.size(), hash_text(large)}));
}

}  // namespace
}  // namespace strait::store
