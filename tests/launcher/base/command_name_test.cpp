#include <gtest/gtest.h>

#include "launcher/base/own_program.h"
#include "tests/scratch_directory.h"

namespace strait::base {
namespace {

TEST(CommandName, IsTheScriptInItsCheckoutAlone) {
  const ScratchDirectory scratch;
  for (const char* folder : {"checkout/build/release/bin", "checkout/runs", "other"}) {
    std::filesystem::create_directories(scratch / folder);
  }
  const std::filesystem::path program = scratch / "checkout/build/release/bin/strait";
  ScratchDirectory::write(program, "");
  EXPECT_EQ(command_name(scratch / "checkout", program), "strait") << "there is no script";
  ScratchDirectory::write(scratch / "checkout/strait", "");
  EXPECT_EQ(command_name(scratch / "checkout", program), "./strait");
  EXPECT_EQ(command_name(scratch / "checkout/runs", program), "strait");
  EXPECT_EQ(command_name(scratch / "other", program), "strait");
}

TEST(CommandName, IgnoresOtherFilesAndFoldersOfThatName) {
  const ScratchDirectory scratch;
  std::filesystem::create_directories(scratch / "other");
  ScratchDirectory::write(scratch / "other/strait", "");
  ScratchDirectory::write(scratch / "strait", "");
  const std::filesystem::path program = scratch / "build/release/bin/strait";
  EXPECT_EQ(command_name(scratch / "other", program), "strait");
  std::filesystem::create_directories(scratch / "prefix/strait/1.0/bin");
  EXPECT_EQ(command_name(scratch / "prefix", scratch / "prefix/strait/1.0/bin/strait"), "strait");
}

TEST(StraitCommand, IsOneThatAShellRunsHere) {
  EXPECT_EQ(strait_command("resume", "runs/a-1"), command_name() + " resume runs/a-1");
  EXPECT_EQ(strait_command("stop --now", "my runs/#1"),
            command_name() + " stop --now 'my runs/#1'");
}

}  // namespace
}  // namespace strait::base
