#include "framework/store/file_mapping.h"

#include <sys/mman.h>

#include <cerrno>

#include "framework/store/store_error.h"

namespace strait::store {

FileMapping::FileMapping(const FileDescriptor& file, std::size_t size,
                         const std::filesystem::path& path)
    : size_(size) {
  if (size_ == 0) return;
  void* const start = ::mmap(nullptr, size_, PROT_READ, MAP_SHARED, file.number(), 0);
  if (start == MAP_FAILED) throw system_error("map", path, errno);
  start_ = static_cast<std::byte*>(start);
}

FileMapping::~FileMapping() {
  if (start_ != nullptr) ::munmap(start_, size_);
}

void FileMapping::release_pages() const {
  // Only advice: if the kernel refuses, the pages stay counted for longer.
  if (start_ != nullptr) ::madvise(start_, size_, MADV_DONTNEED);
}

}  // namespace strait::store
