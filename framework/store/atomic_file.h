#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <span>
#include <string_view>

#include "framework/file_descriptor.h"
#include "framework/store/file_hash.h"

namespace strait::store {

// Writes a file that other readers see whole and durable, or not at all: bytes go to
// `path`.tmp-PID-RANDOM, commit() does fsync, rename, fsync of the directory. Without commit()
// nothing remains. Any error (no room, fsync failed) voids the attempt: a failed fsync is never
// tried again, because the kernel then calls lost pages clean. Later calls on a voided file are
// broken invariants.
//
// One thread. Errors are StoreError storage_full (with bytes needed and available) or storage_io.
class AtomicFile {
 public:
  // With the size known, room is set aside first: a full disk shows before the work, not after.
  explicit AtomicFile(std::filesystem::path path, std::uint64_t expected_bytes = 0);
  ~AtomicFile();
  AtomicFile(const AtomicFile&) = delete;
  AtomicFile& operator=(const AtomicFile&) = delete;

  void write(std::span<const std::byte> bytes);

  // `may_rename`, if given, is asked last before the rename; it throws to forbid it (fencing).
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
  std::uint64_t waited_ = 0;   // up to here it has written
};

// The whole of it at once.
FileSummary replace_file(const std::filesystem::path& path, std::string_view bytes);

// A copy of a file, likewise whole and durable or not at all. Errors are those of InputFile, too.
FileSummary copy_file(const std::filesystem::path& from, const std::filesystem::path& to);

// Makes the directory (and its parents) so that they survive a power cut.
void make_directory(const std::filesystem::path& path);
// Makes what was created, renamed or removed in the directory durable.
void sync_directory(const std::filesystem::path& path);

}  // namespace strait::store
