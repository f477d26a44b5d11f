#include "launcher/process/run_program.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <csignal>

#include "launcher/base/errors.h"

namespace strait::process {
namespace {

using namespace std::chrono_literals;
using testing::HasSubstr;

ProgramAnswer shell(const std::string& script, std::chrono::seconds limit = 20s) {
  return run_program({"sh", "-c", script}, limit);
}

std::string refusal(const std::vector<std::string>& argv, std::chrono::seconds limit) {
  try {
    run_program(argv, limit);
  } catch (const base::UserError& error) {
    return error.what();
  }
  return "nothing was refused";
}

TEST(RunProgram, GivesBothStreamsAndTheEnd) {
  const ProgramAnswer answer = shell("echo out; echo 'a first line' >&2; echo worse >&2; exit 3");
  EXPECT_EQ(answer.out, "out\n");
  EXPECT_EQ(answer.err, "a first line\nworse\n");
  EXPECT_EQ(answer.status.code, 3);
  EXPECT_FALSE(answer.succeeded());
  EXPECT_EQ(answer.complaint(), "worse");
}

TEST(RunProgram, NamesTheSignalOfOneThatSaysNothing) {
  const ProgramAnswer answer = shell("kill -9 $$");
  EXPECT_EQ(answer.status.signal, SIGKILL);
  EXPECT_THAT(answer.complaint(), HasSubstr("signal 9"));
}

TEST(RunProgram, NoShellSeesTheWords) {
  EXPECT_EQ(run_program({"printf", "%s|", "a b", "$(id)", "x\ny"}, 20s).out, "a b|$(id)|x\ny|\n");
}

TEST(RunProgram, ReadsMoreThanAPipeHolds) {
  const ProgramAnswer answer = shell("yes | head -c 3000000; echo done >&2");
  EXPECT_TRUE(answer.succeeded());
  EXPECT_LE(answer.out.size(), std::size_t{1} << 20U);
  EXPECT_GT(answer.out.size(), std::size_t{1} << 19U);
  EXPECT_EQ(answer.err, "done\n");
}

TEST(RunProgram, OurSignalSettingsAreNotItsOwn) {
  struct sigaction ignore {};
  struct sigaction before {};
  ignore.sa_handler = SIG_IGN;
  ::sigaction(SIGTERM, &ignore, &before);
  const ProgramAnswer answer = shell("kill -15 $$; echo survived");
  ::sigaction(SIGTERM, &before, nullptr);
  EXPECT_EQ(answer.status.signal, SIGTERM);
  EXPECT_EQ(answer.out, "");
}

TEST(RunProgram, EndsWhatGivesNoAnswer) {
  EXPECT_THAT(refusal({"sleep", "1000"}, 1s), HasSubstr("sleep has given no answer within 1 s"));
  // Neither does it wait for one that has closed its streams and stays.
  EXPECT_THAT(refusal({"sh", "-c", "exec >&- 2>&-; exec sleep 1000"}, 1s), HasSubstr("no answer"));
}

TEST(RunProgram, SaysThatThereIsNoSuchProgram) {
  EXPECT_THAT(refusal({"no-such-program-anywhere"}, 1s),
              HasSubstr("there is no program no-such-program-anywhere here"));
}

}  // namespace
}  // namespace strait::process
