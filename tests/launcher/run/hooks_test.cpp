#include "launcher/run/hooks.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <csignal>

#include "launcher/base/piped_process.h"
#include "tests/scratch_directory.h"

namespace strait::run {
namespace {

using testing::Contains;

TEST(HookWords, TellACommandWhatHasHappened) {
  const std::string command = "echo \"$STRAIT_CAUSE\" | mail -s 'it ended' me";
  const auto words = hook_words(
      {"failure", command, store::Step{40}, base::ExitCode::numeric, "the loss was\nnot finite"},
      "dates", "/tmp/runs/dates");
  EXPECT_EQ(words.front(), "env");
  for (const char* variable :
       {"STRAIT_RUN=dates", "STRAIT_RUN_DIRECTORY=/tmp/runs/dates", "STRAIT_EVENT=failure",
        "STRAIT_STEP=40", "STRAIT_EXIT_CODE=40", "STRAIT_CAUSE=the loss was\nnot finite"}) {
    EXPECT_THAT(words, Contains(variable));
  }
  // The command is one word, so nothing of it is read by the shell that takes away its input.
  EXPECT_EQ(words.back(), command);
  EXPECT_THAT(words[words.size() - 2], testing::Not(testing::HasSubstr("mail")));
}

TEST(HookWords, CommandEndsWithTheStreamOfTheLauncher) {
  const ScratchDirectory folder;
  const auto words = [&](const std::string& command) {
    return hook_words({"checkpoint", command, store::Step{5}, base::ExitCode::done, ""}, "dates",
                      folder.path());
  };
  const auto limit = [] { return std::chrono::steady_clock::now() + std::chrono::seconds(60); };
  base::PipedProcess hook(words("echo began; sleep 1000; echo over"));
  std::string line;
  ASSERT_EQ(hook.read_line(line, limit()), base::PipedProcess::ReadResult::line);
  EXPECT_EQ(line, "began");
  hook.close_input();
  EXPECT_EQ(hook.read_line(line, limit()), base::PipedProcess::ReadResult::end)
      << "none of its processes is left";
  const auto status = hook.wait_until(limit());
  ASSERT_TRUE(status);
  EXPECT_EQ(status->signal, SIGKILL);
  base::PipedProcess failing(words("read nothing || exit 3"));
  const auto failed = failing.wait_until(limit());
  ASSERT_TRUE(failed);
  EXPECT_EQ(failed->code, 3) << "it has no input, and its code is that of the command";
}

}  // namespace
}  // namespace strait::run
