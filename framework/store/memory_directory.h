#pragma once

#include <filesystem>
#include <string>

#include "framework/file_descriptor.h"

namespace strait::store {

// A directory on tmpfs: its files are in memory, and any process of this user opens them by name.
// It has an empty folder of checkpoints, so that a checkpoint is saved, copied and pruned there as
// in the directory of a run. It ends with this object. If the process was killed, the next object
// of this user on this machine removes it.
class MemoryDirectory {
 public:
  static std::filesystem::path path_of(const std::string& name);
  // Whether a file's bytes are in memory anyway, so that nothing about it belongs on a disk.
  static bool contains(const std::filesystem::path& path);

  // Mode 0700. StoreError: this machine has no tmpfs there, or a living process has the directory.
  explicit MemoryDirectory(std::filesystem::path path);
  ~MemoryDirectory();
  MemoryDirectory(const MemoryDirectory&) = delete;
  MemoryDirectory& operator=(const MemoryDirectory&) = delete;

 private:
  const std::filesystem::path path_;
  FileDescriptor in_use_;
};

}  // namespace strait::store
