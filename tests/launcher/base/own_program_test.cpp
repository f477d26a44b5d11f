#include "launcher/base/own_program.h"

#include <gtest/gtest.h>

#include <fstream>

#include "tests/scratch_directory.h"

namespace strait::base {
namespace {

namespace fs = std::filesystem;

TEST(OwnProgram, FindsTheRecipesOfEveryKindOfInstallation) {
  const ScratchDirectory scratch;
  struct Layout {
    const char* programs;
    const char* shared;
  };
  for (const auto& [programs, shared] :
       {Layout{"clone/build/release/bin", "clone"},
        Layout{"usr/libexec/strait", "usr/share/strait"},
        Layout{"site-packages/strait/bin", "site-packages/strait/share/strait"}}) {
    fs::create_directories(scratch.path() / programs);
    fs::create_directories(scratch.path() / shared / "recipes");
    std::ofstream(scratch.path() / shared / "recipes/quickstart.toml") << "# one\n";
  }
  EXPECT_EQ(shared_folder(scratch.path() / "clone/build/release/bin/strait"),
            scratch.path() / "clone");
  EXPECT_EQ(shared_folder(scratch.path() / "usr/libexec/strait/strait"),
            scratch.path() / "usr/share/strait");
  EXPECT_EQ(shared_folder(scratch.path() / "site-packages/strait/bin/strait"),
            scratch.path() / "site-packages/strait/share/strait");
  EXPECT_EQ(shared_folder(scratch.path() / "other/bin/strait"), fs::path());
}

}  // namespace
}  // namespace strait::base
