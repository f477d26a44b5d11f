#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <csignal>
#include <cstring>
#include <vector>

#include "framework/store/input_file.h"
#include "launcher/base/machine.h"

namespace strait::base {
namespace {

TEST(Memory, PeakIncludesFreedMemory) {
  // More than the process has ever had: other tests of this program have freed theirs.
  const std::int64_t before = peak_memory();
  constexpr std::int64_t kMore = 64 << 20;
  { const std::vector<char> freed(static_cast<std::size_t>(before + kMore), 1); }
  EXPECT_GE(peak_memory(), before + kMore);
  EXPECT_LT(peak_memory(), host_memory().total);
}

TEST(Memory, OwnMemoryIncludesFreedMemoryButNoPagesOfFiles) {
  OwnMemory memory;
  // This program: pages of a file in memory (tmpfs) would be the process's own.
  const store::InputFile file("/proc/self/exe");
  const auto mapping = file.map();
  const auto size = static_cast<std::int64_t>(mapping->bytes().size());
  const std::span<const std::byte> bytes = mapping->bytes();
  EXPECT_GT(std::ranges::count(bytes, std::byte{0}), 0) << "all pages are read";
  EXPECT_LT(memory.peak(), size / 2);
  // More than the process has ever had, so that the kernel's peak rises.
  const std::int64_t taken = peak_memory();
  { const std::vector<char> freed(static_cast<std::size_t>(taken), 1); }
  EXPECT_GT(memory.peak(), taken / 2);
}

// A process that has written this memory, until the end of this object.
class OtherWriter {
 public:
  explicit OtherWriter(std::span<std::byte> shared) {
    std::array<int, 2> written{};
    if (::pipe(written.data()) != 0) return;
    pid_ = ::fork();
    if (pid_ == 0) {
      std::ranges::fill(shared, std::byte{1});
      if (::write(written[1], "", 1) != 1) ::_exit(1);
      for (;;) ::pause();
    }
    ::close(written[1]);
    char byte = 0;
    has_written_ = ::read(written[0], &byte, 1) == 1;
    ::close(written[0]);
  }
  ~OtherWriter() {
    if (pid_ <= 0) return;
    ::kill(pid_, SIGKILL);
    ::waitpid(pid_, nullptr, 0);
  }
  OtherWriter(const OtherWriter&) = delete;
  OtherWriter& operator=(const OtherWriter&) = delete;

  bool has_written() const { return has_written_; }

 private:
  pid_t pid_ = -1;
  bool has_written_ = false;
};

TEST(Memory, OwnMemoryCountsItsPartOfSharedMemory) {
  OwnMemory memory;
  memory.peak();
  const std::int64_t before = memory.peak_with_files();
  constexpr std::int64_t kSize = std::int64_t{256} << 20;
  void* const shared =
      ::mmap(nullptr, kSize, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  ASSERT_NE(shared, MAP_FAILED);
  const OtherWriter other({static_cast<std::byte*>(shared), kSize});
  ASSERT_TRUE(other.has_written());
  std::memset(shared, 2, kSize);
  const std::int64_t peak = memory.peak();
  ::munmap(shared, kSize);
  EXPECT_GT(peak, kSize / 4);
  EXPECT_LT(peak, 3 * kSize / 4);
  EXPECT_LT(memory.peak_with_files(), before + 3 * kSize / 4);
}

TEST(Memory, HostHasNoMoreAvailableThanInAll) {
  EXPECT_GT(host_memory().available, 0);
  EXPECT_LE(host_memory().available, host_memory().total);
}

}  // namespace
}  // namespace strait::base
