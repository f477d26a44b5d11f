#include "framework/sync/shared_memory.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <random>
#include <sstream>
#include <system_error>
#include <utility>

#include "framework/net/link_error.h"

namespace strait::sync {
namespace {

[[noreturn]] void no_memory(const char* what) {
  throw std::system_error(errno, std::generic_category(), what);
}

}  // namespace

SharedMemory::SharedMemory(std::size_t bytes)
    : descriptor_(memfd_create("strait-gradient", MFD_CLOEXEC)), bytes_(bytes) {
  if (!descriptor_.open()) no_memory("memory that replicas share");
  if (ftruncate(descriptor_.number(), static_cast<off_t>(bytes)) != 0) no_memory("memory to share");
  // Numbers of processes and descriptors are those of some other memory on another host.
  std::random_device random;
  const std::uint64_t high = random();
  const std::uint64_t low = random();
  map();
  token() = high << 32U | low;
}

SharedMemory::SharedMemory(SharedMemoryKey key, std::size_t bytes, std::uint32_t replica)
    : bytes_(bytes) {
  const std::string file = fmt::format("/proc/{}/fd/{}", key.process, key.descriptor);
  // Not by a name in /dev/shm: a process that is killed would leave it there.
  descriptor_ = FileDescriptor(open(file.c_str(), O_RDWR | O_CLOEXEC));
  struct stat status {};
  const bool there = descriptor_.open() && fstat(descriptor_.number(), &status) == 0;
  const std::string why = there ? "it is something else" : std::generic_category().message(errno);
  if (there && status.st_size == static_cast<off_t>(bytes)) {
    map();
    if (token() == key.token) return;
    munmap(begin_, bytes_);
  }
  throw net::LinkError(
      net::LinkError::Kind::refused,
      fmt::format("the shared memory of replica {} cannot be opened: {} ({}). Replicas that sum in "
                  "shared memory run on one host, as one user; otherwise set sync.group = "
                  "\"never\"",
                  replica, why, file));
}

void SharedMemory::map() {
  void* const at =
      mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_SHARED, descriptor_.number(), 0);
  if (at == MAP_FAILED) no_memory("mapping memory that replicas share");
  begin_ = static_cast<std::byte*>(at);
}

SharedMemory::SharedMemory(SharedMemory&& other) noexcept
    : descriptor_(std::move(other.descriptor_)),
      begin_(std::exchange(other.begin_, nullptr)),
      bytes_(other.bytes_) {}

SharedMemory::~SharedMemory() {
  if (begin_ != nullptr) munmap(begin_, bytes_);
}

std::uint64_t& SharedMemory::token() const { return *reinterpret_cast<std::uint64_t*>(begin_); }

SharedMemoryKey SharedMemory::key() const { return {getpid(), descriptor_.number(), token()}; }

std::string SharedMemoryKey::text() const {
  return fmt::format("{} {} {}", process, descriptor, token);
}

std::optional<SharedMemoryKey> SharedMemoryKey::parse(const std::string& text) {
  SharedMemoryKey key;
  std::istringstream words(text);
  words >> key.process >> key.descriptor >> key.token;
  return words ? std::optional(key) : std::nullopt;
}

}  // namespace strait::sync
