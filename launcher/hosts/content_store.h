#pragma once

#include <chrono>

#include "framework/file_descriptor.h"
#include "launcher/hosts/chunk_table.h"

namespace strait::transfer {

// One content of the store. It is not evicted while an object of this class exists, in any process.
// The bytes are in data(), a PartialFile that may have holes.
class PinnedContent {
 public:
  PinnedContent(std::filesystem::path folder, FileDescriptor in_use)
      : folder_(std::move(folder)), in_use_(std::move(in_use)) {}

  std::filesystem::path data() const { return folder_ / "data"; }

  // One process of the host has the write lock. The others wait, because that process writes the
  // same chunks. The lock ends with the process. False: another process has it.
  bool try_lock_for_writing();
  void unlock_writing() { write_lock_ = FileDescriptor(); }

 private:
  std::filesystem::path folder_;
  FileDescriptor in_use_;
  FileDescriptor write_lock_;
};

// The contents that this host has received, by id: `<directory>/<id>/`, and the files of installed
// builds, by SHA-256 (see hosts/host_install.h). Any number of processes use it at once and may be
// killed at any time. Beyond the limit, contents are evicted, least recently used first. Contents
// that are pinned or linked by a build stay.
class ContentStore {
 public:
  static constexpr std::uint64_t kDefaultLimit = std::uint64_t{64} << 30;

  explicit ContentStore(std::filesystem::path directory, std::uint64_t limit = kDefaultLimit);

  PinnedContent pin(const std::string& id);  // creates it where it does not exist

  // Makes room for this many bytes as far as possible, within the limit and on the disk.
  void evict(std::uint64_t needed_bytes = 0);

  // The chunk table of a file of this host, wherever it is. A file with the same stamp is not read
  // again: tables are kept in `<directory>/tables/` for kMaxTableAge, but may be lost at any time.
  // StoreError: the file cannot be read, or changed while it was read.
  static constexpr std::chrono::hours kMaxTableAge{30 * 24};
  ChunkTable table_of(const std::filesystem::path& file) const;

 private:
  void write_table(const std::filesystem::path& entry, const std::string& text) const;

  std::filesystem::path directory_;
  std::uint64_t limit_;
};

}  // namespace strait::transfer
