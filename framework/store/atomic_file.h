#pragma once

#include <functional>
#include <string_view>

#include "framework/file_descriptor.h"
#include "framework/store/file_hash.h"

namespace strait::store {

// Writes a file that readers see either complete and durable, or not at all. Bytes go to
// `path`.tmp-PID-RANDOM; commit() does fsync, rename, and fsync of the directory. Without commit()
// nothing remains. Any error (no room, failed fsync) voids the attempt. A failed fsync is never
// retried, because the kernel then marks the lost pages clean. Calls on a voided file are broken
// invariants.
//
// One thread. Errors are StoreError storage_full (with bytes needed and available) or storage_io.
class AtomicFile {
 public:
  // If the size is known, room is reserved first, so that a full disk shows before the work.
  explicit AtomicFile(std::filesystem::path path, std::uint64_t expected_bytes = 0);
  ~AtomicFile();
  AtomicFile(const AtomicFile&) = delete;
  AtomicFile& operator=(const AtomicFile&) = delete;

  void write(std::span<const std::byte> bytes);

  // `may_rename`, if given, is called just before the rename, and throws to forbid it (fencing).
  FileSummary commit(const std::function<void()>& may_rename = {});

 private:
  void preallocate(std::uint64_t bytes);
  void start_writeback();
  [[noreturn]] void fail(const char* doing, int error);
  void discard() noexcept;

  std::filesystem::path path_;
  std::filesystem::path temporary_;
  FileDescriptor descriptor_;
  FileHash hash_;
  std::uint64_t expected_ = 0;
  std::uint64_t written_ = 0;
  std::uint64_t flushed_ = 0;  // writeback was requested up to here
  std::uint64_t waited_ = 0;   // writeback has finished up to here
};

// Removes what killed processes have left of their attempts to write `path`. The file of a living
// writer is locked and stays, on whichever host it runs. A file that cannot be removed stays, too.
void remove_abandoned(const std::filesystem::path& path);

// Writes a whole file at once.
FileSummary replace_file(const std::filesystem::path& path, std::string_view bytes);

// Copies a file; the copy is complete and durable, or does not exist. Also throws the errors of
// InputFile.
FileSummary copy_file(const std::filesystem::path& from, const std::filesystem::path& to);

// Makes the directory and its parents, so that they survive a power cut.
void make_directory(const std::filesystem::path& path);

// A file that has no name: of this process alone, and gone with it, whatever ends it. It is made as
// `prefix`.RANDOM and unlinked at once. StoreError: it cannot be made.
FileDescriptor unnamed_file(const std::filesystem::path& prefix);
// Makes creations, renames and removals in the directory durable.
void sync_directory(const std::filesystem::path& path);

}  // namespace strait::store
