#include "launcher/base/errors.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <new>
#include <stdexcept>

namespace strait::base {
namespace {

using testing::StartsWith;

// The texts of libtorch's allocators for the CPU and for CUDA.
TEST(DescribeFailure, SaysHowMuchMemoryCouldNotBeHad) {
  const Failure cpu = describe_failure(std::runtime_error(
      "[enforce fail at alloc_cpu.cpp:127] err == 0. DefaultCPUAllocator: can't allocate memory: "
      "you tried to allocate 346800128 bytes. Error code 12\nframe #0: …"));
  EXPECT_EQ(cpu.code, ExitCode::out_of_memory);
  EXPECT_THAT(cpu.text, StartsWith("out of memory (346.8 MB more could not be had); a smaller"));
  const Failure gpu = describe_failure(std::runtime_error(
      "CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 7.79 GiB"));
  EXPECT_EQ(gpu.code, ExitCode::out_of_memory);
  EXPECT_THAT(gpu.text, StartsWith("out of memory (2.00 GiB more could not be had); a smaller"));
  EXPECT_THAT(describe_failure(std::bad_alloc()).text, StartsWith("out of memory; a smaller"));
}

TEST(DescribeFailure, TakesWhatItDoesNotKnowForOurs) {
  const Failure ours = describe_failure(std::runtime_error("index out of range\nframe #0: …"));
  EXPECT_EQ(ours.code, ExitCode::internal);
  EXPECT_EQ(ours.text, "broken invariant: index out of range");
  EXPECT_TRUE(ours.defect);
  // What another program did is none of ours, though the exit code is the same.
  EXPECT_FALSE(describe_failure(UserError(ExitCode::internal, "b: cannot fork")).defect);
}

}  // namespace
}  // namespace strait::base
