#pragma once

#include <cstddef>
#include <filesystem>
#include <span>

#include "framework/file_descriptor.h"

namespace strait::store {

// A file's bytes in the address space, for reading. Its pages belong to the kernel: all processes
// of a machine share them, and they are taken back when memory is short. A file that is cut short
// while it is mapped ends the process with SIGBUS, so only token files are mapped, which strait
// replaces and never writes into. Immutable: any thread may read.
class FileMapping {
 public:
  FileMapping(const FileDescriptor& file, std::size_t size, const std::filesystem::path& path);
  ~FileMapping();
  FileMapping(const FileMapping&) = delete;
  FileMapping& operator=(const FileMapping&) = delete;

  std::span<const std::byte> bytes() const { return {start_, size_}; }

  // The process no longer counts the pages as its own; they are mapped again when they are read.
  void release_pages() const;

 private:
  std::byte* start_ = nullptr;
  std::size_t size_ = 0;
};

}  // namespace strait::store
