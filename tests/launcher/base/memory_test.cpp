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

TEST(Memory, OwnMemoryCountsItsPartOfSharedMemory) {
  OwnMemory memory;
  constexpr std::int64_t kSize = std::int64_t{256} << 20;
  void* const shared =
      ::mmap(nullptr, kSize, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  ASSERT_NE(shared, MAP_FAILED);
  std::array<int, 2> written{};
  ASSERT_EQ(::pipe(written.data()), 0);
  const pid_t other = ::fork();
  ASSERT_GE(other, 0);
  if (other == 0) {
    std::memset(shared, 1, kSize);
    if (::write(written[1], "", 1) != 1) ::_exit(1);
    for (;;) ::pause();
  }
  char byte = 0;
  ASSERT_EQ(::read(written[0], &byte, 1), 1);
  std::memset(shared, 2, kSize);
  const std::int64_t peak = memory.peak();
  ::kill(other, SIGKILL);
  ::waitpid(other, nullptr, 0);
  ::munmap(shared, kSize);
  for (const int end : written) ::close(end);
  EXPECT_GT(peak, kSize / 4);
  EXPECT_LT(peak, 3 * kSize / 4);
}

TEST(Memory, HostHasNoMoreAvailableThanInAll) {
  EXPECT_GT(host_memory().available, 0);
  EXPECT_LE(host_memory().available, host_memory().total);
}

}  // namespace
}  // namespace strait::base
