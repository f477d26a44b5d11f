#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <span>
#include <string>

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

// A regular file opened for reading at given offsets. A file that shrinks meanwhile is an error
// with a sentence. Any number of threads may read at once.
class InputFile {
 public:
  explicit InputFile(std::filesystem::path path);

  const std::filesystem::path& path() const { return path_; }
  std::uint64_t size() const { return size_; }  // when it was opened

  // Maps the whole file; FileMapping says which files may be mapped.
  std::shared_ptr<const FileMapping> map() const;

  // Fills `bytes` from `offset` on. A file that ends earlier is an error.
  void read(std::uint64_t offset, std::span<std::byte> bytes) const;

  // Reads from `begin` to `end` and passes `piece` bytes at a time to `take`; the last piece may be
  // shorter.
  void each_piece(std::uint64_t begin, std::uint64_t end, std::uint64_t piece,
                  const std::function<void(std::span<const std::byte>)>& take) const;

 private:
  std::filesystem::path path_;
  FileDescriptor descriptor_;
  std::uint64_t size_ = 0;
};

// Reads the whole file. One larger than `limit` is refused before anything is allocated.
std::string read_text_file(const std::filesystem::path& path, std::uint64_t limit);

}  // namespace strait::store
