#include "launcher/cli/command_line.h"

#include <gtest/gtest.h>

namespace strait::cli {
namespace {

TEST(FoldedHelp, GoesOnBelowWhereTheMeaningBegins) {
  const std::string help =
      "Usage: strait x\n"
      "  --set TEXT ...      key=value instead of the recipe's; repeatable\n"
      "                      here: in this process; hosts: over the stages\n";
  EXPECT_EQ(folded_help(help, 48),
            "Usage: strait x\n"
            "  --set TEXT ...      key=value instead of the\n"
            "                      recipe's; repeatable\n"
            "                      here: in this process;\n"
            "                      hosts: over the stages\n");
  EXPECT_EQ(folded_help(help, 0), help);
  EXPECT_EQ(folded_help(help, 200), help);
}

TEST(FoldedHelp, KeepsWordsWholeAndCountsCharacters) {
  EXPECT_EQ(folded_help("aaaaaaaaaaaaaaaaaaaa bb\n", 10), "aaaaaaaaaaaaaaaaaaaa\n  bb\n");
  EXPECT_EQ(folded_help("éééé éééé\n", 9), "éééé éééé\n");
  EXPECT_EQ(folded_help("éééé éééé\n", 8), "éééé\n  éééé\n");
}

}  // namespace
}  // namespace strait::cli
