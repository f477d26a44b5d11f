#include "launcher/process/memory.h"

#include <gtest/gtest.h>

#include <vector>

namespace strait::process {
namespace {

TEST(Memory, PeakIncludesFreedMemory) {
  const std::int64_t before = peak_memory();
  constexpr std::int64_t kBytes = 256 << 20;
  { std::vector<char>(kBytes, 1); }
  EXPECT_GE(peak_memory(), before + kBytes / 2);
  EXPECT_LT(peak_memory(), host_memory().total);
}

TEST(Memory, HostHasNoMoreAvailableThanInAll) {
  EXPECT_GT(host_memory().available, 0);
  EXPECT_LE(host_memory().available, host_memory().total);
}

}  // namespace
}  // namespace strait::process
