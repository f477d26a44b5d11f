#include "framework/net/shared_memory.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include <array>
#include <cerrno>
#include <random>
#include <sstream>
#include <string_view>
#include <system_error>

#include "framework/net/link_error.h"

namespace strait::net {
namespace {

constexpr const char* kName = "strait";
// What /proc shows of it begins so.
constexpr std::string_view kShown = "/memfd:strait";
// Without it, memory that its owner has shortened would kill the process that reads it.
constexpr int kSizeSeals = F_SEAL_SHRINK | F_SEAL_GROW;

[[noreturn]] void no_memory(const char* what) {
  throw std::system_error(errno, std::generic_category(), what);
}

std::string error_text() { return std::generic_category().message(errno); }

// Empty: it is such memory.
std::string objection(const FileDescriptor& file, std::size_t bytes) {
  struct stat status {};
  if (!file.open() || fstat(file.number(), &status) != 0) return error_text();
  const bool same_size = status.st_size == static_cast<off_t>(bytes);
  const int seals = fcntl(file.number(), F_GET_SEALS);
  if (same_size && seals >= 0 && (seals & kSizeSeals) == kSizeSeals) return "";
  return "it is something else";
}

}  // namespace

SharedMemory::SharedMemory(std::size_t bytes)
    : descriptor_(memfd_create(kName, MFD_CLOEXEC | MFD_ALLOW_SEALING)), bytes_(bytes) {
  if (!descriptor_.open()) no_memory("memory that processes share");
  if (ftruncate(descriptor_.number(), static_cast<off_t>(bytes)) != 0) no_memory("memory to share");
  if (fcntl(descriptor_.number(), F_ADD_SEALS, kSizeSeals) != 0) no_memory("memory to share");
  // On another host the same process and descriptor may be other memory, so a token tells.
  std::random_device random;
  const std::uint64_t high = random();
  const std::uint64_t low = random();
  map(PROT_READ | PROT_WRITE);
  token() = high << 32U | low;
}

SharedMemory::SharedMemory(SharedMemoryKey key, std::size_t bytes, Access access) : bytes_(bytes) {
  // Not by a name in /dev/shm: a process that is killed would leave it there.
  const std::string file = fmt::format("/proc/{}/fd/{}", key.process, key.descriptor);
  const auto refuse = [&](const std::string& why) {
    throw LinkError(LinkError::Kind::refused,
                    fmt::format("shared memory cannot be opened: {} ({})", why, file));
  };
  // Asked first, because opening a pipe or a device of another process has effects there.
  std::array<char, kShown.size()> shown{};
  const ssize_t length = readlink(file.c_str(), shown.data(), shown.size());
  if (length < 0) refuse(error_text());
  if (std::string_view(shown.data(), static_cast<std::size_t>(length)) != kShown) {
    refuse("it is something else");
  }
  const bool writes = access == Access::write;
  descriptor_ = FileDescriptor(open(file.c_str(), (writes ? O_RDWR : O_RDONLY) | O_CLOEXEC));
  if (const std::string why = objection(descriptor_, bytes); !why.empty()) refuse(why);
  map(writes ? PROT_READ | PROT_WRITE : PROT_READ);
  if (token() == key.token) return;
  munmap(begin_, bytes_);
  refuse("it is that of another process");
}

void SharedMemory::map(int protection) {
  void* const at = mmap(nullptr, bytes_, protection, MAP_SHARED, descriptor_.number(), 0);
  if (at == MAP_FAILED) no_memory("mapping memory that processes share");
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

}  // namespace strait::net
