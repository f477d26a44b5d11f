#include "launcher/run/hooks.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

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

}  // namespace
}  // namespace strait::run
