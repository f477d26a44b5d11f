#include "launcher/base/errors.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cerrno>
#include <filesystem>
#include <new>
#include <system_error>

namespace strait::base {
namespace {

using testing::HasSubstr;
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
  for (const char* number : {".", "1.5", "123456789012345678901234567890"}) {
    EXPECT_THAT(
        describe_failure(std::runtime_error("a plugin is out of memory, tried to allocate " +
                                            std::string(number) + " bytes"))
            .text,
        StartsWith("out of memory; a smaller"));
  }
}

// What the standard library throws of files and threads is no broken invariant.
TEST(DescribeFailure, KnowsTheErrorsOfTheSystem) {
  const auto of_file = [](int number) {
    return describe_failure(std::filesystem::filesystem_error(
        "cannot rename", "runs/a", std::error_code(number, std::generic_category())));
  };
  EXPECT_EQ(of_file(ENOSPC).code, ExitCode::storage_full);
  EXPECT_EQ(of_file(EDQUOT).code, ExitCode::storage_full);
  EXPECT_EQ(of_file(EIO).code, ExitCode::storage_io);
  EXPECT_EQ(of_file(EACCES).code, ExitCode::bad_input) << "no restart permits it";
  EXPECT_EQ(of_file(ENAMETOOLONG).code, ExitCode::bad_input);
  EXPECT_EQ(of_file(EIO).text, "cannot rename runs/a: Input/output error");
  // As the standard library says that it could not look at a file.
  const std::filesystem::filesystem_error status(
      "status", "a/.venv/bin/python", std::make_error_code(std::errc::permission_denied));
  EXPECT_EQ(describe_failure(status).text, "cannot look at a/.venv/bin/python: Permission denied");
  const auto of_call = [](int number) {
    return describe_failure(std::system_error(number, std::system_category(), "clone"));
  };
  EXPECT_EQ(of_call(EAGAIN).code, ExitCode::bad_input);
  EXPECT_THAT(of_call(EAGAIN).text, StartsWith("this user may start no more threads or processes"));
  EXPECT_EQ(of_call(ENOMEM).code, ExitCode::out_of_memory);
  EXPECT_EQ(of_call(EMFILE).code, ExitCode::storage_io);
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
