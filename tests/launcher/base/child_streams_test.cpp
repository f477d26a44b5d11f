#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cerrno>

#include "launcher/base/piped_process.h"

namespace strait::base {
namespace {

TEST(AboveStandardStreams, LeavesErrnoOfDescriptorThatCouldNotBeOpened) {
  FileDescriptor absent(::open("/nowhere/log", O_RDONLY | O_CLOEXEC));
  EXPECT_FALSE(above_standard_streams(std::move(absent)).open());
  EXPECT_EQ(errno, ENOENT);
}

TEST(StreamPair, ConnectsBothEndsAboveStandardStreams) {
  const auto [own, theirs] = stream_pair("a program");
  EXPECT_GT(own.number(), 2);
  EXPECT_GT(theirs.number(), 2);
  ASSERT_EQ(::write(own.number(), "hello", 5), 5);
  std::string read(5, '\0');
  ASSERT_EQ(::read(theirs.number(), read.data(), read.size()), 5);
  EXPECT_EQ(read, "hello");
}

}  // namespace
}  // namespace strait::base
