#pragma once

#include <cstddef>
#include <filesystem>
#include <span>
#include <string>

#include "framework/file_descriptor.h"
#include "framework/store/file_hash.h"

namespace strait::store {

// A file in memory without a name on any disk (memfd). Its memory is freed with its last
// descriptor, in whichever process and however that ends.
//
// Written once, then sealed, so that it never changes again. Other processes of this user open it
// through descriptor_path(). One thread. Errors are StoreError.
class MemoryFile {
 public:
  explicit MemoryFile(const std::string& name);  // shown in /proc only

  void write(std::span<const std::byte> bytes);
  FileSummary seal();

  int descriptor() const { return descriptor_.number(); }

 private:
  std::string name_;
  FileDescriptor descriptor_;
  FileHash hash_;
  std::uint64_t written_ = 0;
};

// An empty file, to be written through descriptor_path() and sealed by seal_memory().
FileDescriptor create_memory(const std::string& name);
void seal_memory(const FileDescriptor& descriptor);

// Opens a sealed file. StoreError mismatch: it is something else, or may still change.
FileDescriptor open_sealed(const std::filesystem::path& path);

// The path of a descriptor of a running process; without `pid`, of this one.
std::filesystem::path descriptor_path(int descriptor);
std::filesystem::path descriptor_path(std::int64_t pid, int descriptor);

}  // namespace strait::store
