#include "framework/store/input_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <vector>

#include "framework/store/file_progress.h"
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

InputFile::InputFile(std::filesystem::path path) : path_(std::move(path)) {
  // O_NONBLOCK, so that a named pipe is refused below and not waited for.
  descriptor_ = FileDescriptor(::open(path_.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (!descriptor_.open()) throw system_error("open", path_, errno);
  struct stat status {};
  if (::fstat(descriptor_.number(), &status) != 0) throw system_error("look at", path_, errno);
  if (!S_ISREG(status.st_mode)) {
    throw StoreError(StoreError::Kind::bad_input, "{} is not a regular file", path_.string());
  }
  size_ = static_cast<std::uint64_t>(status.st_size);
}

std::shared_ptr<const FileMapping> InputFile::map() const {
  return std::make_shared<const FileMapping>(descriptor_, size_, path_);
}

void InputFile::read(std::uint64_t offset, std::span<std::byte> bytes) const {
  std::size_t done = 0;
  while (done < bytes.size()) {
    // pread() leaves the file position alone, so several threads may read at once.
    const ssize_t count =
        ::pread(descriptor_.number(), bytes.data() + done,
                std::min(bytes.size() - done, kFilePiece), static_cast<off_t>(offset + done));
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) throw system_error("read", path_, errno);
    if (count == 0) {
      throw StoreError(StoreError::Kind::corrupt,
                       "{} ends at byte {} where {} bytes were there when it was opened: "
                       "another program truncates it while it is read",
                       path_.string(), offset + done, size_);
    }
    done += static_cast<std::size_t>(count);
    file_progress() += static_cast<std::uint64_t>(count);
  }
}

void InputFile::each_piece(std::uint64_t begin, std::uint64_t end, std::uint64_t piece,
                           const std::function<void(std::span<const std::byte>)>& take) const {
  std::vector<std::byte> buffer(std::min(end - begin, piece));
  for (std::uint64_t offset = begin; offset < end; offset += buffer.size()) {
    const auto part = std::span(buffer).first(std::min<std::uint64_t>(end - offset, buffer.size()));
    read(offset, part);
    take(part);
  }
}

std::string read_text_file(const std::filesystem::path& path, std::uint64_t limit) {
  const InputFile file(path);
  if (file.size() > limit) {
    throw StoreError(StoreError::Kind::bad_input,
                     "{} has {} bytes; at most {} are read from a file of this kind", path.string(),
                     file.size(), limit);
  }
  std::string text(file.size(), '\0');
  file.read(0, std::as_writable_bytes(std::span(text)));
  return text;
}

}  // namespace strait::store
