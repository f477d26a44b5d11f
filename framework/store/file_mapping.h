#pragma once

#include <cstddef>
#include <filesystem>
#include <span>

#include "framework/file_descriptor.h"

namespace strait::store {

// The bytes of a file, mapped for reading. The pages belong to the kernel: all processes of a
// machine share them, and the kernel reclaims them when memory is short. A mapped file that is
// truncated ends the process with SIGBUS. So only token files are mapped, which strait replaces and
// never changes. Immutable: any thread may read.
class FileMapping {
 public:
  FileMapping(const FileDescriptor& file, std::size_t size, const std::filesystem::path& path);
  ~FileMapping();
  FileMapping(const FileMapping&) = delete;
  FileMapping& operator=(const FileMapping&) = delete;

  std::span<const std::byte> bytes() const { return {start_, size_}; }

  // The process no longer counts the pages as its own. They are mapped again when read.
  void release_pages() const;

 private:
  std::byte* start_ = nullptr;
  std::size_t size_ = 0;
};

}  // namespace strait::store
