#pragma once

#include <cstdint>
#include <filesystem>

namespace strait::transfer {

// Tells a file from itself after a change without reading it: as long as the stamp is the same,
// what was found out about the content holds. The time is that of the last change of the inode,
// which no program can set back.
struct FileStamp {
  std::uint64_t size = 0;
  std::uint64_t inode = 0;
  std::int64_t changed = 0;  // nanoseconds

  static FileStamp of(const std::filesystem::path& path);  // StoreError: there is none
  bool operator==(const FileStamp&) const = default;
};

}  // namespace strait::transfer
