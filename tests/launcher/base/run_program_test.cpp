#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <csignal>

#include "launcher/base/errors.h"
#include "launcher/base/piped_process.h"
#include "tests/refusal_of.h"

namespace strait::base {
namespace {

using namespace std::chrono_literals;
using testing::HasSubstr;

ProgramResult shell(const std::string& script, std::chrono::seconds limit = 20s) {
  return run_program({"sh", "-c", script}, limit);
}

std::string refusal(const std::vector<std::string>& argv, std::chrono::seconds limit) {
  return refusal_of<UserError>([&] { run_program(argv, limit); });
}

TEST(RunProgram, ReturnsBothStreamsAndExitStatus) {
  const ProgramResult result = shell("echo out; echo 'a first line' >&2; echo worse >&2; exit 3");
  EXPECT_EQ(result.out, "out\n");
  EXPECT_EQ(result.err, "a first line\nworse\n");
  EXPECT_EQ(result.status.code, 3);
  EXPECT_FALSE(result.succeeded());
  EXPECT_EQ(result.error_line(), "worse");
}

TEST(RunProgram, ReportsSignalWhenStderrIsEmpty) {
  const ProgramResult result = shell("kill -9 $$");
  EXPECT_EQ(result.status.signal, SIGKILL);
  EXPECT_THAT(result.error_line(), HasSubstr("signal 9"));
}

TEST(RunProgram, RunsWithoutShell) {
  EXPECT_EQ(run_program({"printf", "%s|", "a b", "$(id)", "x\ny"}, 20s).out, "a b|$(id)|x\ny|\n");
}

TEST(RunProgram, ReadsMoreThanPipeCapacity) {
  const ProgramResult result = shell("yes | head -c 3000000; echo done >&2");
  EXPECT_TRUE(result.succeeded());
  EXPECT_LE(result.out.size(), std::size_t{1} << 20U);
  EXPECT_GT(result.out.size(), std::size_t{1} << 19U);
  EXPECT_EQ(result.err, "done\n");
}

TEST(RunProgram, ResetsSignalSettings) {
  struct sigaction ignore {};
  struct sigaction before {};
  ignore.sa_handler = SIG_IGN;
  ::sigaction(SIGTERM, &ignore, &before);
  const ProgramResult result = shell("kill -15 $$; echo survived");
  ::sigaction(SIGTERM, &before, nullptr);
  EXPECT_EQ(result.status.signal, SIGTERM);
  EXPECT_EQ(result.out, "");
}

TEST(RunProgram, KillsProgramAfterTimeout) {
  EXPECT_THAT(refusal({"sleep", "1000"}, 1s), HasSubstr("sleep timed out after 1 s"));
  // Closing the streams does not count as an exit.
  EXPECT_THAT(refusal({"sh", "-c", "exec >&- 2>&-; exec sleep 1000"}, 1s), HasSubstr("timed out"));
}

TEST(RunProgram, ReportsMissingProgram) {
  EXPECT_THAT(refusal({"no-such-program-anywhere"}, 1s),
              HasSubstr("there is no program no-such-program-anywhere here"));
}

}  // namespace
}  // namespace strait::base
