#include "framework/store/memory_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "framework/store/file_progress.h"
#include "framework/store/store_error.h"

namespace strait::store {
namespace {

// F_SEAL_SEAL too: nobody may add seals, so equality with this set proves that all are there.
constexpr int kNeverChanges = F_SEAL_WRITE | F_SEAL_GROW | F_SEAL_SHRINK | F_SEAL_SEAL;

}  // namespace

FileDescriptor create_memory(const std::string& name) {
  FileDescriptor made(::memfd_create(name.c_str(), MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!made.open()) throw system_error("create in memory", name, errno);
  return made;
}

void seal_memory(const FileDescriptor& descriptor) {
  if (::fcntl(descriptor.number(), F_ADD_SEALS, kNeverChanges) != 0) {
    throw system_error("seal", descriptor_path(descriptor.number()), errno);
  }
}

FileDescriptor open_sealed(const std::filesystem::path& path) {
  FileDescriptor opened(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (!opened.open()) throw system_error("open", path, errno);
  if (::fcntl(opened.number(), F_GET_SEALS) != kNeverChanges) {
    throw StoreError(StoreError::Kind::mismatch,
                     fmt::format("{} is not a sealed file in memory", path.string()));
  }
  return opened;
}

std::filesystem::path descriptor_path(int descriptor) {
  return fmt::format("/proc/self/fd/{}", descriptor);
}

std::filesystem::path descriptor_path(std::int64_t pid, int descriptor) {
  return fmt::format("/proc/{}/fd/{}", pid, descriptor);
}

MemoryFile::MemoryFile(const std::string& name) : name_(name), descriptor_(create_memory(name)) {}

void MemoryFile::write(std::span<const std::byte> bytes) {
  std::size_t done = 0;
  while (done < bytes.size()) {
    const ssize_t count = ::write(descriptor_.number(), bytes.data() + done,
                                  std::min(bytes.size() - done, kFilePiece));
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) throw system_error("write to memory", name_, errno);
    hash_.update(bytes.subspan(done, static_cast<std::size_t>(count)));
    done += static_cast<std::size_t>(count);
    written_ += static_cast<std::uint64_t>(count);
    file_progress() += static_cast<std::uint64_t>(count);
  }
}

FileSummary MemoryFile::seal() {
  seal_memory(descriptor_);
  return {written_, hash_.hex()};
}

}  // namespace strait::store
